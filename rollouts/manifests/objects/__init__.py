"""One module for each kind of object of a region: a function of the fleet and the engine."""
