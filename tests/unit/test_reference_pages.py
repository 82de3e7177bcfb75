"""The pages that people look things up in have everything, and nothing that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gates.answers.golden import GoldenPrompt
from pipelines.spec.delivery import Delivery
from tidegate.core.access import CredentialSource, PrometheusEndpoint, SecretKey
from tidegate.core.errors import ExitCode
from tidegate.core.metrics import RequestSeries, TimeSeries

ROOT = Path(__file__).parents[2]
SPEC, OPERATIONS = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("reference/spec", "guides/operations"))


EXPLAINED_ONCE = (CredentialSource, SecretKey, PrometheusEndpoint, RequestSeries, TimeSeries)
"""What stands in many places, in a page of its own."""


def fields(kind: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every field of a spec by its path; a stage stands by its own name."""
    for name, field in kind.model_fields.items():
        path = f"{above}{field.alias or name}"
        models = [part for part in inside(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        parts = [part for part in models if part not in EXPLAINED_ONCE]
        if not parts:
            yield path
        for part in parts:
            yield from fields(part, "" if path == "stages" else f"{path}.")


def inside(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from inside(part)


def test_every_field_of_a_spec_is_explained_and_nothing_else() -> None:
    parts = {"model", "engine", "gates", "stages", "regions", "fleet", "traffic"}
    explained = set(re.findall(r"^\| `([\w.]+)` \|", SPEC, re.MULTILINE)) - parts
    assert explained == {*fields(Delivery), *fields(GoldenPrompt)}


def test_every_exit_code_is_explained() -> None:
    assert [code for code in ExitCode if f"| {int(code)} | " not in OPERATIONS] == []
