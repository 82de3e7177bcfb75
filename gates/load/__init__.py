"""What users do, and what is remembered of it."""
