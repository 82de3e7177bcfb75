"""A model version made ready to serve: pinned vLLM, its arguments, its compile cache."""
