"""Gates outside of a delivery: what a file of them asks, and the judge over HTTP for Argo Rollouts, Flagger and CI."""
