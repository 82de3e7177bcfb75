"""Whether users ask both arms the same kind of things, and the canary answers in the same kind of way."""
