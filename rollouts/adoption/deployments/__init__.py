"""Adopts a Deployment by a Rollout next to it, which gets the same pods and is then adopted; and gives it back."""
