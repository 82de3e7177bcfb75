"""What `tidegate slo` runs: specs without a delivery are read without what reads one."""
