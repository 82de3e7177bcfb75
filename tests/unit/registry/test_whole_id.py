"""The id of a delivery, as lists show it and as a person types it."""

from __future__ import annotations

import pytest

from registry.deliveries import MlflowDeliveries
from registry.errors import UnknownDelivery
from registry.model import ModelVersion
from tidegate.core.errors import UsageError
from tidegate.testing import FakeClock, MemoryStore

ONE, TWO = f"{1:032x}", f"{2:032x}"


@pytest.fixture
def deliveries() -> MlflowDeliveries:
    """Of two models: 000...01 and 000...02."""
    found = MlflowDeliveries(MemoryStore(), FakeClock())
    for name in ("chat", "code"):
        found.open_delivery(
            ModelVersion(name=name, version="2", digest="d" * 64, files={}, size_bytes=0), None, spec_digest="s"
        )
    return found


@pytest.mark.parametrize("given", [ONE, "0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f"])
def test_an_id_is_taken_as_it_is_and_the_beginning_of_one_is_found(deliveries: MlflowDeliveries, given: str) -> None:
    assert deliveries.whole_id(given) == given


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("0" * 8, UsageError, f"delivery: found 00000000, with which 2 ids begin; expected one of {ONE}, {TWO}"),
        ("0" * 7, UnknownDelivery, "there is no delivery 0000000"),
        ("9" * 9, UnknownDelivery, "there is no delivery 999999999"),
        ("a%' OR 1", UnknownDelivery, "there is no delivery a%' OR 1"),
    ],
)
def test_what_is_no_one_delivery_is_refused(
    deliveries: MlflowDeliveries, given: str, error: type[UsageError], message: str
) -> None:
    with pytest.raises(error) as refused:
        deliveries.whole_id(given)
    assert (type(refused.value), refused.value.message) == (error, message)
