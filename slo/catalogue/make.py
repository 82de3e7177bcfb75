"""Each kind of SLO as the SLO that rules are made of."""

from __future__ import annotations

from collections.abc import Iterable

from slo.model import Slo, SloGroup
from slo.spec import CountedBy, SloSpec


def slo_of(item: SloSpec, *, service: str, counted_by: CountedBy) -> Slo:
    """The SLO of one line of `slos`; `counted_by` holds where the line does not say it."""
    raise NotImplementedError


def group_of(items: Iterable[SloSpec], *, service: str, counted_by: CountedBy) -> SloGroup:
    """The SLOs of a delivery, as if they stood in one document of Sloth's own format."""
    raise NotImplementedError
