"""Names, options and help of the groups of commands; what a command does is imported when it is called."""
