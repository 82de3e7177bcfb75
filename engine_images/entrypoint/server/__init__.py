"""How vLLM's server is run, where that differs from running its module."""
