"""What each pinned vLLM accepts, kept as data: a spec is judged where no vLLM is installed."""
