"""Whether a version spends its SLO's error budget too fast."""
