"""What a spec may not say for itself: a spec comes from whoever writes pull requests, and is treated as code."""
