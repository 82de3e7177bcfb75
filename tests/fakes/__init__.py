"""Stands-in for what a unit test cannot have, held to the same contract tests as the real ones."""
