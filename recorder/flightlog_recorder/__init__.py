"""The recorder: the services and commands that look after the log itself."""
