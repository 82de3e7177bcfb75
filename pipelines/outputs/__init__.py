"""A delivery's story in the forms that CI systems show."""
