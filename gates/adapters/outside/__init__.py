"""Those that gates ask outside."""
