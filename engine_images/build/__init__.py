"""From a model version's files to an engine that is proven: compiled once, found again, never half there."""
