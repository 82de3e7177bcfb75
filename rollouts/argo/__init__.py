"""A Rollout as Argo Rollouts and its kubectl plugin see it: phase and health, actions on it, and the view of it."""
