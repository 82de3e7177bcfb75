"""The whole `delivery.yaml`; start at `delivery`."""
