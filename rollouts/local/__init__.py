"""A fleet on one machine: engines as processes, one Envoy for each region, and the host process that owns them."""
