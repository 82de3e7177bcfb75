"""The id of a delivery, as lists show it and as a person types it."""

from __future__ import annotations

import itertools

import pytest
from fakes.delivery.ledger import MemoryRuns, memory_store

from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.errors import UnknownDelivery
from registry.model import ModelVersion
from tidegate.core.errors import UsageError
from tidegate.testing import FakeClock


@pytest.fixture
def deliveries() -> MlflowDeliveries:
    """Of two models: `run-12345670` and `run-12345671`."""
    runs = MemoryRuns()
    runs._ids = itertools.count(12345670)
    found = MlflowDeliveries("memory:", FakeClock(), store=memory_store(runs=runs))
    for name in ("chat", "code"):
        found.open_delivery(
            ModelVersion(name=name, version="2", digest="d" * 64, files={}, size_bytes=0), None, spec_digest="s"
        )
    return found


@pytest.mark.parametrize("given", ["run-12345671", "0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f"])
def test_an_id_is_taken_as_it_is_and_the_beginning_of_one_is_found(deliveries: MlflowDeliveries, given: str) -> None:
    assert deliveries.whole_id(given) == given


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            "run-1234",
            UsageError,
            "delivery: found run-1234, with which 2 ids begin; expected one of run-12345670, run-12345671",
        ),
        ("run-123", UsageError, "delivery: found 'run-123'; expected an id, or at least its first 8 characters"),
        ("run-99999", UnknownDelivery, "there is no delivery run-99999"),
    ],
)
def test_what_is_no_one_delivery_is_refused(
    deliveries: MlflowDeliveries, given: str, error: type[UsageError], message: str
) -> None:
    with pytest.raises(error) as refused:
        deliveries.whole_id(given)
    assert (type(refused.value), refused.value.message) == (error, message)
