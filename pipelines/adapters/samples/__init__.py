"""Samples that engines keep of users' requests: asked for, taken and opened, here and in clusters."""
