"""Use cases of a fleet of clusters besides its deliveries."""
