"""The crash matrix: a harness killed at each of its await points, and what is left afterwards."""
