"""For tests of fleets and deliveries of one's own: a contract, a fleet, engines, evidence and time in memory.

Needs pytest and pytest-asyncio, which tidegate itself does not.
"""

# The rewriting, by which a failed promise shows both sides of its comparison, has to come before the import.
# ruff: noqa: E402

import pytest

pytest.register_assert_rewrite("tidegate.testing.contract")

from tidegate.testing.chat import FakeChat, FakeTokenizer, Script, answers_500
from tidegate.testing.clock import START, FakeClock
from tidegate.testing.contract import FleetContract, MakeEngine, versions
from tidegate.testing.evidence import FakeEvidence, Load
from tidegate.testing.fleet import FakeEngine, FakeEngines, FakeFleet, FakeProxy, an_engine, digest_of
from tidegate.testing.models import write_tiny_model

__all__ = [
    "START",
    "FakeChat",
    "FakeClock",
    "FakeEngine",
    "FakeEngines",
    "FakeEvidence",
    "FakeFleet",
    "FakeProxy",
    "FakeTokenizer",
    "FleetContract",
    "Load",
    "MakeEngine",
    "Script",
    "an_engine",
    "answers_500",
    "digest_of",
    "versions",
    "write_tiny_model",
]
