"""What the gates alone are built from."""
