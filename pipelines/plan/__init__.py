"""A spec and the state of the registry become a plan, without I/O; start at `planner`."""
