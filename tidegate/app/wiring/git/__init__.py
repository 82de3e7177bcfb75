"""Builds what speaks to a repository, its forge, and who applies it."""
