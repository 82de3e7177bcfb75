"""Regions as their guard sees them, one module for each kind of what makes engines."""
