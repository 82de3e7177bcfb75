"""Deliveries that the registry starts: webhooks come in, the registry is looked at, one delivery at a time begins."""
