"""Use cases without a terminal: deliver, resume, roll back. The command line parses, calls them and prints."""
