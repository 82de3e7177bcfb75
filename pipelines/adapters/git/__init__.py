"""A Git repository, the forge that it is at, and the tools that apply what it says."""
