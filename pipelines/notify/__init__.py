"""Telling people and programs outside what a delivery comes to. Nothing waits for them, and they stop nothing."""
