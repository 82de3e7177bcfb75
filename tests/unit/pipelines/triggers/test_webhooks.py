"""A webhook is believed when it is whole, signed with our secret, and recent; and what MLflow's events mean."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.requests import DeliveryRequest
from pipelines.triggers.webhooks import (
    EVENTS,
    TOLERANCE,
    Malformed,
    Message,
    WebhookStatus,
    read,
    reject_reason,
    sign,
    weakness,
)

SECRET = "a secret of thirty-two characters"
AT = 1_790_000_000
NOW = datetime.fromtimestamp(AT, UTC)
BODY = b'{"entity": "model_version_alias"}'


def message(body: bytes = BODY, *, id: str = "0b1f", at: int = AT, secret: str = SECRET) -> Message:
    return Message(id, str(at), sign(secret, id, str(at), body), body)


def test_the_signature_is_the_one_that_mlflow_makes() -> None:
    # What `_generate_hmac_signature("secret", "id", "1", "{}")` of MLflow 3.17 returns.
    assert sign("secret", "id", "1", b"{}") == "v1,490pAcC1LQ1k1cOcmH0da199+A88OKCj0Io4WnJlp68="


@given(st.binary(max_size=200), st.from_regex(r"[A-Za-z0-9_-]{1,128}", fullmatch=True))
def test_whatever_is_signed_is_believed(body: bytes, id: str) -> None:
    assert reject_reason(message(body, id=id), (SECRET,), NOW) is None


@given(st.binary(max_size=200))
def test_another_body_under_the_same_signature_is_forged(body: bytes) -> None:
    assume(body != BODY)
    assert reject_reason(replace(message(), body=body), (SECRET,), NOW) is WebhookStatus.FORGED


@given(st.text(max_size=60))
def test_no_text_is_a_signature_but_the_one(signature: str) -> None:
    assume(signature != message().signature)
    assert reject_reason(replace(message(), signature=signature), (SECRET,), NOW) in {
        WebhookStatus.FORGED,
        WebhookStatus.UNSIGNED,
    }


def test_the_parts_cannot_be_cut_elsewhere() -> None:
    whole = message(b"2.{}", id="a", at=1)
    moved = Message("a.1", "2", whole.signature, b"{}")
    assert reject_reason(moved, (SECRET,), NOW) is WebhookStatus.UNSIGNED


@given(st.integers(-100_000, 100_000))
def test_only_what_is_recent_is_believed_whichever_clock_is_ahead(seconds: int) -> None:
    found = reject_reason(message(), (SECRET,), NOW + timedelta(seconds=seconds))
    assert found is (None if abs(seconds) <= TOLERANCE.total_seconds() else WebhookStatus.STALE)


def test_who_has_no_secret_does_not_learn_whether_it_was_late() -> None:
    assert reject_reason(message(secret="guessed", at=0), (SECRET,), NOW) is WebhookStatus.FORGED


def test_while_a_secret_is_replaced_both_sign() -> None:
    assert reject_reason(message(), ("a new secret of thirty-two chars.", SECRET), NOW) is None
    assert reject_reason(message(), ("a new secret of thirty-two chars.",), NOW) is WebhookStatus.FORGED


@pytest.mark.parametrize("secret", ["", "short", "a" * 32, "abababababababababab"])
def test_a_secret_that_could_be_guessed_is_weak(secret: str) -> None:
    assert weakness(secret)


def test_a_random_one_is_not() -> None:
    assert weakness("9f3c41d28a1b4c7e9d5f6a7b8c9d0e1f") is None


SEVEN = DeliveryRequest(model="support-llm", version="7", alias="challenger")


def body(event: str, **data: Any) -> bytes:
    """As MLflow sends it."""
    entity, _, action = event.partition(".")
    sent = {"entity": entity, "action": action, "timestamp": "2026-01-01T00:00:00+00:00", "data": data}
    return json.dumps(sent).encode()


@pytest.mark.parametrize(
    ("event", "data", "heard"),
    [
        ("model_version_alias.created", {"alias": "challenger", "version": "7"}, ("support-llm", SEVEN)),
        # What later versions of MLflow may say too.
        ("model_version_alias.created", {"alias": "challenger", "version": "7", "new": 1}, ("support-llm", SEVEN)),
        # A mark that is taken away.
        ("model_version_alias.deleted", {"alias": "challenger"}, ("support-llm", None)),
        ("model_version_tag.set", {"version": "7", "key": "owner", "value": "challenger"}, (None, None)),
    ],
)
def test_a_mark_is_a_request_and_other_events_concern_nobody(
    event: str, data: dict[str, Any], heard: tuple[str | None, DeliveryRequest | None]
) -> None:
    assert read(body(event, name="support-llm", **data)) == heard


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


@given(st.sampled_from(EVENTS), st.dictionaries(st.sampled_from(["name", "version", "alias"]), JSON))
def test_every_event_is_read_or_malformed(event: str, data: dict[str, Any]) -> None:
    try:
        _, request = read(body(event, **data))
    except Malformed:
        return
    assert request is None or request.version.isdecimal()
