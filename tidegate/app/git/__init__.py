"""The repository of a delivery: what would be written there, whether it may be, and what is after a rollback."""
