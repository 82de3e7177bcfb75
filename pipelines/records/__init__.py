"""How a delivery's records reach the ledger: in order, exactly once, and without holding up whoever makes them."""
