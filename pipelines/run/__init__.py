"""A plan becomes a delivery: step by step to its end, or back to where it began; start at `engine`."""
