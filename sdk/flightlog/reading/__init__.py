"""From messages to events: which of them count (`chain`), a pass over them, and all of the log."""
