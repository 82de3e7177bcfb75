"""One Kubernetes API server over HTTP: credentials and requests."""
