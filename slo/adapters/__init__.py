"""Programs that SLOs are asked about."""
