"""The gates alone, without a delivery around them."""
