"""A Git repository, and the tools that apply what it says."""
