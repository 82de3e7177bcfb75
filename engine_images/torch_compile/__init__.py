"""Models that vLLM does not serve: compiled by torch.compile, measured against themselves, started from a cache.

`environment/tidegate_torch` runs on the engine environment's Python, which has torch; the rest has only its numbers.
"""
