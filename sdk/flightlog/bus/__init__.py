"""NATS: what the protocols need of it (`protocol`), and the connection that gives it."""
