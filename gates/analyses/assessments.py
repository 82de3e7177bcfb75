"""Assessments in MLflow as evidence for a `mean` gate: what scorers, or people, said of traces of each version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Protocol

from pydantic import Field

from gates.analyses.queries import PLACES, Window, without
from gates.evidence.batch import ArmName, Batch, PodTotal
from gates.evidence.names import PLACE
from gates.model import ArmKey, NoData
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Duration

Name = Annotated[str, Field(pattern="^[^'\"`\\\\]{1,250}$")]
"""MLflow's filters know no escapes."""


class Assessed(Protocol):
    """What an MLflow has of traces that began since `traced`, and have these tags."""

    def __call__(
        self, name: str, experiment: str, tags: Mapping[str, str], *, traced: datetime, since: datetime, until: datetime
    ) -> tuple[int, float] | str:
        """How many assessments of that name that count were made in (since, until], and their sum; why there are none,
        where no trace has one.

        Raises:
            OutsideError: MLflow does not answer.
        """
        ...


class Assessments(SpecModel):
    """Which assessments count, and how the traces of one arm are told from those of the other."""

    name: Name
    """As the scorer, or whoever gives feedback, calls it. A number counts as it is, `yes` and true as 1, `no` and false
    as 0; anything else does not count."""
    experiment: Name
    """The MLflow experiment that has the traces."""
    tags: Mapping[Name, Name] = Field(min_length=1)
    """Of the traces of one arm: `{model_version: "{{.version}}"}`. A value may leave open `{{.region}}`, `{{.role}}`
    and `{{.version}}`."""
    scored_within: Duration = Field(default=timedelta(minutes=15), gt=timedelta(0))
    """How long after its request a trace may be assessed; later it does not count."""

    def __hash__(self) -> int:
        """Forecasts are kept by the settings of their gate, and a mapping has none of its own."""
        return hash(self.model_dump_json())

    def contradictions(self) -> Iterator[SpecConflict]:
        """The tags tell the arms apart, and leave open what is known."""
        places = {place for value in self.tags.values() for place in PLACE.findall(value)}
        if unknown := sorted(places - set(PLACES)):
            yield SpecConflict(("tags",), f"{{{{.{unknown[0]}}}}}", f"only these open places: {', '.join(PLACES)}")
        elif not places & {"role", "version"}:
            expected = "a tag that tells the arms apart, with {{.role}} or {{.version}} in its value"
            yield SpecConflict(("tags",), "tags that both arms' traces have", expected)

    def of(self, arm: ArmKey) -> dict[str, str]:
        """The tags of one arm's traces, with nothing left open."""
        said = arm.model_dump()
        return {name: PLACE.sub(lambda place: said[place[1]], value) for name, value in self.tags.items()}

    def read(self, batch: Batch, gate: str, queries: Assessed, arms: tuple[ArmKey, ArmKey], window: Window) -> Batch:
        """The batch with what was said of both arms' traces; each counts once, in the window in which it was made."""
        span = {"traced": window.since - self.scored_within, "since": window.since, "until": window.until}
        for arm, key in zip(ArmName, arms, strict=True):
            found = queries(self.name, self.experiment, self.of(key), **span)
            if isinstance(found, str):
                batch = without(batch, gate, NoData(reason=found))
                continue
            count, total = found
            pods = (*batch.totals.get(gate, ()), PodTotal(arm=arm, count=count, total=total))
            batch = batch.model_copy(update={"totals": {**batch.totals, gate: pods}})
        return batch
