"""The only place where adapters are built; everything else is handed ports."""
