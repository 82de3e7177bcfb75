"""Where the adapters of use cases are built; what carries a delivery is handed ports."""
