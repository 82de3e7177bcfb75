"""The delivery's side of samples that engines keep of users' requests."""
