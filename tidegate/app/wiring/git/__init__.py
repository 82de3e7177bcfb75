"""Builds what speaks to a repository, and to who applies it."""
