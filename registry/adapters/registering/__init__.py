"""A Hugging Face folder becomes a model version, laid out as `mlflow.transformers` would, whichever store takes it."""
