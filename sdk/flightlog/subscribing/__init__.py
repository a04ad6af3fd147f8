"""Live subscribers: every live event at least once to whoever shares a name, and a replay never."""
