"""The small sections of a delivery's spec: `model`, `fleet`, `metrics`, `patience`, `traffic`, `samples`, `notify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from re import fullmatch
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from engine_images.samples.key import REDACTED
from registry.conventions import alias_problem, is_version_number
from registry.model import Alias, ServingAliases
from rollouts.local.scrape_config import INTERVAL_SECONDS
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.manifests.theirs_spec import ReferencedFleetSpec, RouteFleetSpec
from tidegate.core.metrics import MetricNames
from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.spec import NAME
from tidegate.core.units import Duration, Percent, format_duration

AN_ALIAS = "an alias of the model, such as `champion` or `production`"


def _alias(text: str) -> str:
    """Anything that MLflow takes for one."""
    problem = alias_problem(text)
    if problem:
        raise at_odds(f"{text!r}: {problem}", AN_ALIAS)
    return text


def _alias_or_number(text: str) -> str:
    return text if is_version_number(text) else _alias(text)


AliasName = Annotated[str, AfterValidator(_alias)]


class ModelReference(SpecModel):
    """Which model version moves, and what it becomes: both are MLflow aliases, of the team's own choice."""

    example = "{name: support-llm}"
    name: str = Field(pattern=r"""^[^'"`\\/:\x00-\x1f]+$""")
    origin: Annotated[str, AfterValidator(_alias_or_number)] = Field(default=Alias.CHALLENGER.value, alias="from")
    target: AliasName = Field(default=Alias.CHAMPION.value, alias="to")
    previous: AliasName = Alias.PREVIOUS.value
    """The alias of the version that had `to` before."""

    @property
    def serving(self) -> ServingAliases:
        """As the registry writes them."""
        return ServingAliases(champion=self.target, previous=self.previous)

    @model_validator(mode="after")
    def _are_apart(self) -> ModelReference:
        if self.previous in (self.target, self.origin):
            taken = "to" if self.previous == self.target else "from"
            raise at_odds(f"`previous` and `{taken}` both {self.previous}", "two aliases")
        return self


Port = Annotated[int, Field(ge=1024, le=65535)]
Name = Annotated[str, Field(pattern=NAME)]


class LocalFleet(SpecModel):
    """The fleet on this machine; a region without a port gets a free one."""

    example = "{kind: local}"
    kind: Literal["local"] = "local"
    ports: Mapping[Name, Port] = {}
    unattended: Duration = timedelta(minutes=15)
    """How long nothing may be heard of the one who carries a trial that lives; of one that is gone
    it is known at once."""


BY_REFERENCE = "argo with rollout"  # as a wrong kind is told of those that there are


def _kind_of(fleet: object) -> str:
    """Whose rules apply: one that does not say is on this machine, unless it has what clusters alone have."""
    if isinstance(fleet, Mapping):
        kind = str(fleet.get("kind", "argo" if "regions" in fleet else "local"))
        return BY_REFERENCE if kind == "argo" and "rollout" in fleet else kind
    return BY_REFERENCE if isinstance(fleet, ReferencedFleetSpec) else str(getattr(fleet, "kind", "local"))


Fleet = Annotated[
    Annotated[LocalFleet, Tag("local")]
    | Annotated[ArgoFleetSpec, Tag("argo")]
    | Annotated[ReferencedFleetSpec, Tag(BY_REFERENCE)]
    | Annotated[RouteFleetSpec, Tag("route")],
    Discriminator(_kind_of),
]


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
    """How long a delivery goes on trying to roll back a region that it had to leave behind."""
    call: Duration = Field(default=timedelta(seconds=10), gt=timedelta(0))
    """How long one call to MLflow may take; after that it counts as silence."""
    end: Duration = timedelta(seconds=30)
    """How long a delivery that is over waits for MLflow to take its last records; then the next command writes them."""


class Traffic(SpecModel):
    """The users of each region: what planning expects, and what `tidegate fleet up --users` plays."""

    requests_per_second: float = Field(gt=0, le=1_000_000)
    prompts: Path | None = None
    max_tokens: int = Field(default=32, ge=1, le=4096)


About = Literal["opened", "stopped", "approval", "freeze", "left", "closed"]
"""What is told: a delivery begins; a step's gates said no, or its time was over; a step waits for people, or goes on;
it waits for the end of a freeze; a region could not be rolled back, or is after all; the delivery is over."""


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

    one_of = ("webhook", "slack")
    webhook: AddressSpec | None = None
    """Gets one JSON document for each message, by POST."""
    slack: AddressSpec | None = None
    """An incoming webhook of Slack, or of a chat that takes the same."""
    about: tuple[About, ...] = Field(default=get_args(About), min_length=1)

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


Redacted = Literal["email", "key", "iban", "card", "ip", "phone", "number", "name"]
"""What can be taken out of a text; as `engine_images.samples.key.REDACTED`."""


class SamplesSpec(SpecModel):
    """What engines keep of users' requests and answers while a stage asks for it; without this section nothing."""

    share: Percent = Field(default=0.05, gt=0, le=1, validate_default=False)
    """Of a region's requests: in shadow with their copies; in canary half from each arm, as far as it has so many."""
    redact: tuple[Redacted, ...] = REDACTED  # type: ignore[assignment]
    """Taken out in the engine, before anything is kept."""
    words: tuple[str, ...] = ()
    """Taken out too, whatever their case."""
    max_entries: int = Field(default=500, ge=1, le=10_000)
    """In each engine; the oldest goes first."""
    max_megabytes: int = Field(default=8, ge=1, le=256)
    """The same by size."""
    keep: Duration = Field(default=timedelta(minutes=2), ge=timedelta(seconds=10), le=timedelta(minutes=15))
    """How long an engine keeps what nobody took."""

    def share_of(self, part: float) -> float:
        """The share of an arm's own requests that is kept, where the arm has that part (0 to 1) of users."""
        return min(1.0, self.share / 2 / part) if part else 0.0
