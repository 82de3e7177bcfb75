"""The live page of `tidegate serve`: what the ledger says, drawn on the server and sent again when it changes."""
