"""One Kubernetes API server over HTTP: credentials, requests, watches."""
