"""What an authentic webhook of MLflow 3 says, as `mlflow/webhooks/types.py` writes it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from registry.triggers.model import Wish

DELIVER_TAG = "tidegate.deliver"
"""A tag on a model version that wishes for its delivery, for who may not move aliases; its value names the alias."""
EVENTS = (
    "model_version_alias.created",
    "model_version_alias.deleted",
    "model_version_tag.set",
    "model_version_tag.deleted",
)
"""Those that a webhook for tidegate is registered for."""


class Malformed(ValueError):
    """Signed, but not what MLflow sends."""


class Heard(BaseModel):
    """The part of an event that matters here."""

    model_config = ConfigDict(frozen=True)

    event: str
    """Such as `model_version_alias.created`."""
    model: str | None = None
    """The registered model that a mark was set on or taken from; None for all other events."""
    wish: Wish | None = None
    """None when a mark was taken away."""


class _Data(BaseModel):
    """Of the four events; other fields, such as those of later versions of MLflow, are let be."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: str = Field(min_length=1, max_length=256)
    version: str | None = Field(default=None, pattern=r"^[1-9][0-9]{0,18}$")
    alias: str | None = Field(default=None, min_length=1, max_length=256)
    key: str | None = None
    value: str | None = Field(default=None, max_length=5000)


class _Envelope(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    entity: str = Field(max_length=64)
    action: str = Field(max_length=64)
    data: dict[str, object]


def read(body: bytes) -> Heard:
    """What the event says.

    Raises:
        Malformed: it is no event, or lacks what an event of its kind has.
    """
    try:
        envelope = _Envelope.model_validate_json(body)
        event = f"{envelope.entity}.{envelope.action}"
        if event not in EVENTS:
            return Heard(event=event)
        data = _Data.model_validate(envelope.data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise Malformed(f"{where}: {first['msg']}") from None
    return _of_a_mark(event, data)


def _of_a_mark(event: str, data: _Data) -> Heard:
    if event.startswith("model_version_tag.") and data.key != DELIVER_TAG:
        return Heard(event=event)
    if event.endswith(".deleted"):
        return Heard(event=event, model=data.name)
    alias = data.alias if event == "model_version_alias.created" else data.value
    if not data.version or not alias:
        raise Malformed(f"{event}: no version, or no alias")
    return Heard(event=event, model=data.name, wish=Wish(model=data.name, version=data.version, alias=alias))
