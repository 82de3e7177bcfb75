"""The judge for other programs: gates from a file, evidence as lines, verdicts as lines and reports."""
