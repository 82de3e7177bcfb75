"""What the engine environment is made from, and what runs on its Python."""
