"""What commands do that have no use case of their own in `tidegate.app`, and how they print it."""
