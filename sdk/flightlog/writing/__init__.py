"""From drafts to stored events: what to send, what an answer means (`writer`), keys and seals."""
