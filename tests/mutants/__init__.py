"""Safeguards switched off in the source, one at a time, to see that the suite misses each."""
