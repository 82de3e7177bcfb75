"""What every fleet's engines are asked to keep, and what they have sealed, opened."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from engine_images.samples.key import SampleKey
from gates.answers.samples import UserSample
from pipelines.spec.sections import SamplesSpec
from tidegate.core.errors import OutsideError


def asked_for(key: SampleKey, settings: SamplesSpec, shares: Mapping[str, float], *, until: float) -> str:
    """The text that engines read, which holds nothing secret; `until` is a Unix time in seconds."""
    return key.request(
        shares,
        until=until,
        redact=settings.redact,
        words=settings.words,
        max_entries=settings.max_entries,
        max_bytes=settings.max_megabytes << 20,
        keep_seconds=settings.keep.total_seconds(),
    )


def opened(key: SampleKey, answers: Iterable[Any]) -> tuple[UserSample, ...]:
    """The samples of engines' answers, which may be anything.

    Raises:
        OutsideError: one is sealed for another key, or of another form.
    """
    try:
        return tuple(
            UserSample.model_validate_json(key.open(base64.b64decode(each, validate=True)))
            for answer in answers
            for each in answer["samples"]
        )
    # `from None`: the error as it came holds what a user wrote.
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        hint = "let engines and deliveries be of one version of tidegate"
        raise OutsideError("an engine's answer of samples is of another form", hint=hint) from None
