"""What each kind of gate is: its settings, its test, its forecast and its words, one module a gate."""
