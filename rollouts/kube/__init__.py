"""The Kubernetes API as values: what can be asked of it, what it answers, and when to ask again."""
