"""Generated inputs are the same ones in every run: a test that fails must fail for everybody."""

from hypothesis import settings

settings.register_profile("gates", settings.get_profile("tidegate"), derandomize=True, database=None, max_examples=40)
settings.load_profile("gates")
