"""Engines' pods: what they are made of, the sets of several nodes, and what admission policies demand of both."""
