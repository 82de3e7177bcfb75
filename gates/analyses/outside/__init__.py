"""Gates whose question is asked outside: of a command, of a web service, or of an evaluation harness."""
