"""Commands: they build the adapters and hand them down."""
