"""How somebody else's Prometheus is asked: its address, who we say that we are, and where the secrets for that are."""
