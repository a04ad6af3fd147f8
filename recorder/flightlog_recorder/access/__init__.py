"""Who may do what: the roles, as permissions of NATS and of Redis, and the accounts around them."""
