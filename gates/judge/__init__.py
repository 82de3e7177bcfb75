"""A language model that scores answers, blinded, and what it must show before it is believed."""
