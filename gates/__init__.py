"""Evidence in, verdict out."""
