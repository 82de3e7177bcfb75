"""How much is kept of an answer."""

MOST_BYTES = 16 << 20
"""Of an answer; more is none."""
KEPT_CHARACTERS = 64 << 10
"""The end of it, for a person."""
