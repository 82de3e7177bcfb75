"""Model versions: where they come from."""
