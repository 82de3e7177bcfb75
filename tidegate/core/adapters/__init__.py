"""Outside systems that several rooms speak to."""
