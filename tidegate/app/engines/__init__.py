"""Use cases of engines: building them, and their images."""
