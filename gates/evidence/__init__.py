"""What both arms did: batches of evidence, and the way from a Prometheus server's raw samples to them."""
