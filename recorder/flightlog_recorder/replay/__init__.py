"""Time travel: a session's events and states at any seq, from its log or an exported file."""
