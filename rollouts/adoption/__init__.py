"""Takes over a Rollout of others with its Services and its route, while it serves; and gives all of it back."""
