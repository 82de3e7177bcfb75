"""A first `delivery.yaml` from what clusters have: values with where they came from, and what does not fit."""
