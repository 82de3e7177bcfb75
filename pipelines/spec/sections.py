"""The small sections of a delivery's spec: `metrics`, `patience`, `traffic` and `notify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from re import fullmatch
from typing import Literal, get_args

from pydantic import Field, model_validator

from rollouts.local.scrape_config import INTERVAL_SECONDS
from tidegate.core.metrics import MetricNames
from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.units import Duration, Percent, format_duration

ON_THIS_MACHINE = timedelta(seconds=INTERVAL_SECONDS)
IN_CLUSTERS = timedelta(seconds=5)
"""Unless the spec says otherwise: a third of what is usual, because a canary's users wait for the third scrape."""


class MetricsSpec(MetricNames):
    """What is asked of Prometheus before gates ask anything."""

    # Above 30 s no rate over a minute, as SLOs and autoscalers ask for, has two samples.
    scrape_interval: Duration | None = Field(default=None, ge=timedelta(seconds=1), le=timedelta(seconds=30))
    """Between two scrapes of an engine: 5 s in clusters, unless told; 2 s on this machine, whatever is told."""

    def of_machine(self) -> Iterator[SpecConflict]:
        """The Prometheus of the fleet on this machine is our own, and one for all deliveries."""
        if self.scrape_interval not in (None, ON_THIS_MACHINE):
            found = format_duration(self.scrape_interval or ON_THIS_MACHINE)
            expected = f"{format_duration(ON_THIS_MACHINE)}, in which the fleet on this machine scrapes"
            yield SpecConflict(("scrape_interval",), found, expected)
        if self.sources:
            expected = "`fleet: {kind: argo, ...}`, or none: the fleet on this machine brings a proxy of its own"
            yield SpecConflict(("sources",), "sources in the local fleet", expected)


class PatienceSpec(SpecModel):
    """Each outlives a restart of what it waits for."""

    metrics: Duration = Field(default=timedelta(minutes=2), gt=timedelta(0))
    """How long evidence may be unreadable while a gate asks for it; then the delivery goes back."""
    registry: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """How long MLflow may be silent: for a step that is to begin, and for gates that go on meanwhile."""
    api: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """How long a region's API server may be silent before a delivery gives the region up; it goes on serving."""
    back: Duration = timedelta(hours=1)
    """How long a delivery goes on trying to take back a region that it had to leave behind."""
    call: Duration = Field(default=timedelta(seconds=10), gt=timedelta(0))
    """How long one call to MLflow may take; after that it counts as silence."""
    end: Duration = timedelta(seconds=30)
    """How long a delivery that is over waits for MLflow to take its last records; then the next command writes them."""


class Traffic(SpecModel):
    """The users of each region: what planning expects, and what `tidegate fleet up --users` plays."""

    requests_per_second: float = Field(gt=0, le=1_000_000)
    prompts: Path | None = None
    max_tokens: int = Field(default=32, ge=1, le=4096)
    regenerate: Percent = Field(default=0.0, ge=0, lt=1, validate_default=False)
    """Of answers after which the user that is played asks the same once more."""


About = Literal["opened", "stopped", "approval", "freeze", "left", "closed"]
"""What is told; `pipelines.views.notifications` says when."""


SECRET_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


class AddressSpec(SpecModel):
    """Where messages go."""

    url_from_env: str = Field(json_schema_extra={"pattern": SECRET_NAME})
    """The environment variable that holds the URL; the one who knows the URL may write there, so
    it stands nowhere else."""

    @model_validator(mode="before")
    @classmethod
    def _quotes_nothing(cls, said: object) -> object:
        """Refuse here what the loader would refuse with the words that it found: they may be the address."""
        name = said.get("url_from_env") if isinstance(said, Mapping) and len(said) == 1 else None
        if not isinstance(name, str) or not fullmatch(SECRET_NAME, name):
            raise at_odds("something else", "url_from_env: NAME, of an environment variable; the URL stays out of here")
        return said


class NotifySpec(SpecModel):
    """One place that is told."""

    webhook: AddressSpec | None = None
    """Gets one JSON document for each message, by POST."""
    slack: AddressSpec | None = None
    """An incoming webhook of Slack, or of a chat that takes the same."""
    about: tuple[About, ...] = Field(default=get_args(About), min_length=1)

    @model_validator(mode="after")
    def _one_place(self) -> NotifySpec:
        if (self.webhook is None) == (self.slack is None):
            raise at_odds("both or none", "exactly one of webhook, slack in each item of the list")
        return self

    @property
    def form(self) -> Literal["webhook", "slack"]:
        """In which form it is told."""
        return "webhook" if self.webhook else "slack"

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        address = self.webhook or self.slack
        assert address is not None, "a spec with neither was refused"
        return address.url_from_env
