"""What holds for all tests: stories assert too, and no generated input fails because the machine is busy."""

import os

import pytest
from hypothesis import HealthCheck, settings

# The words of end-to-end stories: pytest explains only the asserts that it is told to.
pytest.register_assert_rewrite("e2e")

# Commands run within the tests' process say what they say in one of their own, where nobody imported MLflow before.
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")

settings.register_profile("tidegate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidegate")
