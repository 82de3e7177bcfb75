"""What kubectl's Argo Rollouts plugin and its controller know of a Rollout: phase, health, patches, tree."""
