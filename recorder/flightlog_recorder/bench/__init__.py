"""The benchmark: what Flightlog costs, as ratios to bare clients measured in the same run."""
