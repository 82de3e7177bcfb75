"""Sequential tests that are asked from outside, as often as anybody likes, and learn each stretch of time once."""
