"""The live page of `tidegate serve`: a snapshot of the ledger, drawn on the server and sent again when it changes."""
