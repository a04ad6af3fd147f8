"""A session while it runs: opened, its calls made and ruled, its inbox taken, told to stop."""
