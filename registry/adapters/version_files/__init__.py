"""The files of model versions: in folders, behind MLflow servers, in buckets."""
