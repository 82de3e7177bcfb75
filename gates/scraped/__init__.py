"""From a Prometheus server's raw samples to batches of evidence: whole requests, each counted once."""
