"""MLflow: model versions, aliases, and the ledger of every delivery."""
