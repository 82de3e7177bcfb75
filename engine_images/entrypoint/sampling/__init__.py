"""A sampled share of users' requests: noted while they pass, redacted, sealed, kept for as long as it takes."""
