"""What happens, in which order: a spec becomes a plan, a plan becomes a delivery."""
