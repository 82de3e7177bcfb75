"""A delivery's state as Prometheus metrics. Names, labels and meanings are in `docs/reference/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric

from gates.evidence.batch import Dimension
from gates.model import GateOutcome
from pipelines.events.state import DeliveryState, GateState
from pipelines.model import Ending, StageName
from registry.model import StepId
from slo.metrics import SERVICE

RUNNING = "running"
"""The state of a delivery that has no ending yet."""

GOLDEN: Mapping[str, str] = {"mean_score": "golden"}
JUDGED: Mapping[str, str] = {"mean_score": "overall"} | {f"{each}_score": str(each) for each in Dimension}
"""Which numbers of a gate are scores of an arm (`canary_mean_score`), and of which dimension: of the golden set in
the offline stage, of a judge in those after it."""

Sample = tuple[dict[str, str], float]


def families(story: DeliveryState, *, delivery: str) -> Iterator[Metric]:
    """Everything that is known now; nothing before the delivery has started. `delivery` is its id in the ledger."""
    if story.started is None:
        return
    for family in _families(story, delivery):
        yield _of_service(story.spec, family)


def _families(story: DeliveryState, delivery: str) -> Iterator[Metric]:
    named = {"delivery": delivery, "model": story.model, "version": story.version, "champion": story.champion or ""}
    yield InfoMetricFamily("tidegate_delivery", "What is being delivered, and against what.", value=named)
    yield _gauge("delivery_state", "1 for the state that the delivery is in.", _states(story, delivery))
    for noun, what in (("weight", "that the version gets"), ("mirror", "whose requests are copied to the version")):
        shared = [(_in(story, region.name), float(getattr(region, noun))) for region in story.regions]
        yield _gauge(f"delivery_{noun}_percent", f"Users of the region {what}.", shared)
    latest = _latest(story.gates)
    yield _gauge("gate_outcome", "1 for the outcome of the gate's last verdict.", _outcomes(story, latest))
    yield _gauge("gate_number", "A number of the gate's last verdict, or measured next to it.", _numbers(story, latest))
    yield _gauge("quality_score", "How good answers are, 0 to 1.", _scores(story, latest))


def _of_service(name: str, family: Metric) -> Metric:
    """The same, with the label by which one Prometheus tells this delivery from others."""
    family.samples = [sample._replace(labels={SERVICE: name, **sample.labels}) for sample in family.samples]
    return family


def _states(story: DeliveryState, delivery: str) -> Iterator[Sample]:
    now = story.outcome or RUNNING
    for state in (RUNNING, *Ending):
        yield {"delivery": delivery, "state": state, "version": story.version}, float(state == now)


def _outcomes(story: DeliveryState, gates: Iterable[GateState]) -> Iterator[Sample]:
    for gate in gates:
        for outcome in GateOutcome:
            yield _of(story, gate) | {"outcome": str(outcome)}, float(outcome is gate.latest.outcome)


def _numbers(story: DeliveryState, gates: Iterable[GateState]) -> Iterator[Sample]:
    for gate in gates:
        for name, value in {**gate.latest.auxiliary, **gate.latest.numbers}.items():
            yield _of(story, gate) | {"number": name}, value


def _scores(story: DeliveryState, gates: Iterable[GateState]) -> Iterator[Sample]:
    for gate in gates:
        known = {**gate.latest.auxiliary, **gate.latest.numbers}
        for noun, dimension in (GOLDEN if _stage(gate) == StageName.OFFLINE else JUDGED).items():
            for role, version in (("stable", story.champion or ""), ("canary", story.version)):
                if (value := known.get(f"{role}_{noun}")) is not None:
                    arm = {"region": gate.region or "", "role": role, "version": version}
                    yield {"dimension": dimension} | arm, value


def _latest(gates: Iterable[GateState]) -> list[GateState]:
    """Of each gate in each stage of a region the one that spoke last: the weights of a canary are one stage."""
    found = {
        (gate.name, _stage(gate), gate.region): gate for gate in sorted(gates, key=lambda gate: gate.history[-1].at)
    }
    return list(found.values())


def _of(story: DeliveryState, gate: GateState) -> dict[str, str]:
    return {"gate": gate.name, "stage": _stage(gate)} | _in(story, gate.region or "")


def _in(story: DeliveryState, region: str) -> dict[str, str]:
    return {"region": region, "version": story.version}


def _stage(gate: GateState) -> str:
    return StepId.parsed(gate.step).stage


def _gauge(name: str, documentation: str, samples: Iterable[Sample]) -> Metric:
    family = GaugeMetricFamily(f"tidegate_{name}", documentation)
    for labels, value in samples:
        family.add_sample(family.name, labels, value)
    return family
