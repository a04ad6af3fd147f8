"""The demo: an agent dies in the middle of a turn, and another process finishes its work."""
