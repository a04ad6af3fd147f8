"""What is right and wrong with a live deployment, and what mends it. It only looks."""
