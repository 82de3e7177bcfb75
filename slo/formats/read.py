"""Reads SLOs, whatever format each document of a text is in."""

from __future__ import annotations

from datetime import timedelta

from slo.model import SloGroup

MONTH = timedelta(days=30)
"""The period of an SLO whose format does not say one."""


def read(text: str, *, file: str, default_period: timedelta = MONTH) -> list[SloGroup]:
    """The SLOs of every document of `text`; `file` is the name used in problems.

    Raises:
        SpecError: with every problem of every document.
    """
    raise NotImplementedError((text, file, default_period))
