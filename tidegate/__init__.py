"""Progressive delivery for LLMs: from the registry to every region, and back by itself when it is worse."""

__version__ = "0.1.0"
