"""The judge over HTTP: what Argo Rollouts, Flagger and CI ask, and what they are answered."""
