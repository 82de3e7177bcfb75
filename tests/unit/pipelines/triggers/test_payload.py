"""What an event of MLflow means for deliveries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.requests import DeliveryRequest
from pipelines.triggers.webhooks import DELIVER_TAG, EVENTS, Malformed, read

SEVEN = DeliveryRequest(model="support-llm", version="7", alias="challenger")


def body(event: str, **data: Any) -> bytes:
    """As MLflow sends it."""
    entity, _, action = event.partition(".")
    sent = {"entity": entity, "action": action, "timestamp": "2026-01-01T00:00:00+00:00", "data": data}
    return json.dumps(sent).encode()


def test_an_alias_that_is_set_is_a_request() -> None:
    heard = read(body("model_version_alias.created", name="support-llm", alias="challenger", version="7"))
    assert heard == ("support-llm", SEVEN)


def test_the_tag_is_the_same_request() -> None:
    tag = {"key": DELIVER_TAG, "value": "challenger"}
    assert read(body("model_version_tag.set", name="support-llm", version="7", **tag)) == ("support-llm", SEVEN)


def test_another_tag_concerns_nobody() -> None:
    said = body("model_version_tag.set", name="support-llm", version="7", key="owner", value="challenger")
    assert read(said) == (None, None)


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("model_version_alias.deleted", {"alias": "challenger"}),
        ("model_version_tag.deleted", {"version": "7", "key": DELIVER_TAG}),
    ],
)
def test_a_mark_that_is_taken_away_names_the_model_and_requests_nothing(event: str, data: dict[str, str]) -> None:
    assert read(body(event, name="support-llm", **data)) == ("support-llm", None)


def test_other_events_concern_nobody() -> None:
    assert read(body("prompt.created", name="greeting")) == (None, None)


def test_fields_of_later_versions_of_mlflow_are_let_be() -> None:
    sent = json.loads(body("model_version_alias.created", name="support-llm", alias="challenger", version="7"))
    sent |= {"workspace": "default"}
    sent["data"] |= {"previous_version": "6"}
    assert read(json.dumps(sent).encode()) == ("support-llm", SEVEN)


@pytest.mark.parametrize("missing", ["name", "version", "alias"])
def test_a_mark_that_lacks_something_is_malformed(missing: str) -> None:
    data = {"name": "support-llm", "alias": "challenger", "version": "7"}
    del data[missing]
    with pytest.raises(Malformed):
        read(body("model_version_alias.created", **data))


@pytest.mark.parametrize("version", ["0", "-1", "7; rm", "07", "seven", "", 7, None, "9" * 40])
def test_a_version_is_a_number_as_text(version: object) -> None:
    with pytest.raises(Malformed):
        read(body("model_version_alias.created", name="support-llm", alias="challenger", version=version))


@given(st.binary(max_size=300))
def test_bytes_are_an_event_or_malformed(some: bytes) -> None:
    try:
        read(some)
    except Malformed as error:
        assert str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(EVENTS), st.dictionaries(st.sampled_from(["name", "version", "alias", "key", "value"]), JSON))
def test_every_event_is_read_or_malformed(event: str, data: dict[str, Any]) -> None:
    try:
        _, request = read(body(event, **data))
    except Malformed:
        return
    assert request is None or request.version.isdecimal()
