"""Samples of users' requests that engines in a region's pods keep: how they are asked for, given away, and ended."""
