"""A region on Kubernetes: the port `Fleet` with Argo Rollouts, each operation confirmed by reading it back."""
