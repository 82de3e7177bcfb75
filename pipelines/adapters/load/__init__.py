"""Users of a fleet on this machine, played by Locust in a process of its own; what they meet is evidence for gates."""
