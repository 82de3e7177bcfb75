"""Gates on what a team's own Prometheus knows: shares, quantiles and means of both arms, and thresholds."""
