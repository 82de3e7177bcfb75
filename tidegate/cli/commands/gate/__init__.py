"""What `tidegate gate` does: judges evidence, endpoints and records."""
