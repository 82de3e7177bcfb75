"""What a delivery needs from the world, one file per outside system."""
