"""The recorder as a service: looks after the logs themselves, session by session, without end."""
