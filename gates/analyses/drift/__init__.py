"""The drift gate: whether users ask both arms alike, and whether the canary answers in the same kind of way."""
