"""What runs on the engine environment's Python; the folder is on its path, and nothing else of tidegate."""
