"""Looking at a session: what it did, line by line and as a whole, now and as it goes on."""
