"""Kubernetes objects on an SLO's own burn rates: what judges a canary in the cluster while tidegate is away."""
