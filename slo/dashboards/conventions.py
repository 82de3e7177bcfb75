"""What all three dashboards share: variables, selectors, legends and colours, in one place."""

from __future__ import annotations

from slo.dashboards.model import Step
from slo.metrics import SERVICE
from slo.rules.conventions import SERVICE as SLOTHS_SERVICE

DATASOURCE, REGION, VERSION = "datasource", "region", "version"
"""Names of the dashboards' variables; one more is the service, of which there is no choice."""

OF_SERVICE = f'{SERVICE}="${SERVICE}"'
"""Of the series of several deliveries in one Prometheus, those of the dashboard's own."""
_IN_REGION = f'{REGION}=~"${REGION}"'
IN_REGION = f"{OF_SERVICE}, {_IN_REGION}"
OF_SLOS = f'{SLOTHS_SERVICE}="${SERVICE}", {_IN_REGION}'
"""The same of what the rules of SLOs record, which say the service in Sloth's own way."""
FIRING = f'ALERTS{{alertstate="firing", {OF_SLOS}}}'
"""The service's alerts."""
SEEN = f'{IN_REGION}, {VERSION}=~"${VERSION}"'
"""What the variables let through."""
OF_USERS = f'role=~"stable|canary", {SEEN}'
"""Without copies of requests, whose answers nobody sees."""
ARM = "region, role, version"
"""What the recorded signals are kept by."""

ARM_LEGEND = "{{role}} {{version}} · {{region}}"
"""The role first: a series gets its colour by it."""

GREEN, YELLOW, RED, GREY = "green", "yellow", "red", "#8e8e8e"
IDLE = "blue"

ROLE_COLOURS = {"stable": "blue", "canary": "orange", "shadow": "purple", "previous": GREY}
"""The same on every panel of every dashboard; regions are shades of them."""


def too_much(limit: float, *, far: float | None = None, near: float = 1.0) -> tuple[Step, ...]:
    """Green, yellow from `near` times the limit on, red from `far` on (from the limit itself when absent)."""
    warning = (Step(colour=YELLOW, since=limit * near),) if far is not None or near < 1 else ()
    return (Step(colour=GREEN), *warning, Step(colour=RED, since=limit if far is None else far))


def too_little(limit: float, *, near: float) -> tuple[Step, ...]:
    """Red below the limit, yellow up to `near`, then green."""
    return (Step(colour=RED), Step(colour=YELLOW, since=limit), Step(colour=GREEN, since=near))
