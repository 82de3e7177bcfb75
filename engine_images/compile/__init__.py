"""The compiled model: made by the real vLLM once, and proven to be used and right by another start."""
