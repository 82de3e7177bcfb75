"""vLLM's arguments as a spec writes them: checked, read and put onto its command line."""
