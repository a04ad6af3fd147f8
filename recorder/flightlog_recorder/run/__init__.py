"""A scheduled job: a program, the session that it records, and what its exit code says of both."""
