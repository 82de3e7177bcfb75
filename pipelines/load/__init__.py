"""Load of our own making: what is sent to whom, by which shape, and what became of it. Pure."""
