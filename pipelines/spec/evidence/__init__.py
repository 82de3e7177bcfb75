"""Sections of a delivery's spec that say where the evidence of gates comes from."""
