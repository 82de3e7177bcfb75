"""A region on Kubernetes: the port `Fleet` fulfilled through Argo Rollouts, wish by wish, each confirmed by reading."""
