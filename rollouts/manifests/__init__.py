"""What a region's cluster is given: a delivery's `fleet` and one engine become Kubernetes objects. Pure."""
