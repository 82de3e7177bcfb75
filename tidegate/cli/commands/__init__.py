"""One module for each command; each builds its adapters and hands them down."""
