"""The checks by subject. An inspection is a function of the snapshot that yields findings."""
