"""The fleet of a region: engines, traffic, rollback."""
