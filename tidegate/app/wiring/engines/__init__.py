"""Builds what makes engines ready, and what moves their images."""
