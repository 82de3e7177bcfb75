"""Each kind of SLO as the SLO that rules are made of."""

from __future__ import annotations

from collections.abc import Iterable

from slo.catalogue.alerts import alert
from slo.catalogue.queries import sli_of
from slo.catalogue.words import promise
from slo.model import Slo, SloGroup
from slo.spec import CountedBy, SloSpec


def slo_of(item: SloSpec, *, service: str, counted_by: CountedBy) -> Slo:
    """The SLO of one line of `slos`; `counted_by` holds where the line does not say who counts requests.

    Its queries give one series for each region, over the users of stable and canary of `service` together.
    """
    return Slo(
        service=service,
        name=item.name,
        description=item.description or promise(item),
        objective=item.objective,
        window=item.window,
        labels=item.labels,
        sli=sli_of(item, service=service, counted_by=counted_by),
        page=alert(item, service, "page"),
        ticket=alert(item, service, "ticket"),
    )


def group_of(items: Iterable[SloSpec], *, service: str, counted_by: CountedBy) -> SloGroup:
    """The SLOs of a delivery, one at least, as if they stood in one document of Sloth's own format."""
    slos = tuple(slo_of(item, service=service, counted_by=counted_by) for item in items)
    return SloGroup(slos=slos, mode="cli-gen-prom", spec="prometheus/v1")
