"""Types of fields that all formats share: names, labels, queries; each refusal says what would be right."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from slo.model import WINDOW_PLACE
from tidegate.core.model import at_odds
from tidegate.core.yaml_text import Unclear

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*[A-Za-z0-9]")


def _checked_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("letters, digits, '.', '_' and '-'; a letter or digit at both ends")
    return text


def _checked_query(text: str) -> str:
    if not WINDOW_PLACE.search(text):
        raise ValueError("PromQL with {{.window}} where its range goes")
    return text


def _checked_key(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("a key of letters, digits and '_' that begins with no digit")
    return text


def label_name(text: str) -> str:
    """The name of a label that rules may set.

    Raises:
        ValueError: that says what would be right.
    """
    if text == "__name__":
        raise ValueError("another key: __name__ is the metric's own name")
    return _checked_key(text)


def _some_text(text: str) -> str:
    if not text:
        raise ValueError("some text: Prometheus drops what is empty")
    return text


def _as_text(value: object) -> object:
    """YAML reads `tier: 2` and `urgent: true` as no texts; Sloth takes them for the texts that they were."""
    if isinstance(value, Unclear):
        raise at_odds(f"{value}, which Sloth reads as YAML 1.1 does: a truth value, or another number", f"'{value}'")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, int | float) else value


def _none_as_empty(value: object) -> object:
    return {} if value is None else value


_Text = Annotated[str, BeforeValidator(_as_text), AfterValidator(_some_text)]
_Mapping = BeforeValidator(_none_as_empty)


Name = Annotated[str, AfterValidator(_checked_name)]
"""Of a service or an SLO: it becomes part of rule groups' names and of label values."""

Query = Annotated[str, AfterValidator(_checked_query)]
"""PromQL with `{{.window}}` where its range goes; whether it is PromQL, `read_all` asks."""

LabelTexts = Annotated[dict[Annotated[str, AfterValidator(label_name)], _Text], _Mapping]
AnnotationTexts = Annotated[dict[Annotated[str, AfterValidator(_checked_key)], _Text], _Mapping]
Percent = Annotated[float, Strict(), Field(gt=0, le=100)]
