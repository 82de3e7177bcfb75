"""Everything that is recorded of a delivery, and what is read of it again; start at `journal`."""
