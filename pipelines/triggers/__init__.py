"""Deliveries that the registry starts: webhooks come in, the registry is polled, one delivery at a time begins."""
