"""The live page of `tidegate serve`: a snapshot of the ledger, drawn on the server and sent again when it changes."""

PAGE, STREAM, REPORT, STYLE, SCRIPT = "/", "/events", "/deliveries/{id}", "/page.css", "/page.js"
"""Its addresses."""

USER = "tidegate.user"
"""In a request's scope: who somebody is that has logged in."""
