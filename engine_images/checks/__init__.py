"""Whether a model version can be served by the pinned vLLM, told before anything is started."""
