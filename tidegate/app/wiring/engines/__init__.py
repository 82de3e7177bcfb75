"""Builds what makes engines ready, and what brings their images to and fro."""
