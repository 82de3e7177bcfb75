"""A delivery's state as Prometheus metrics. Names, labels and meanings are in `docs/reference/metrics.md`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from gates.evidence.batch import Dimension
from gates.model import GateOutcome
from pipelines.events.state import DeliveryState, GateState
from pipelines.model import Ending, StageName
from registry.model import StepId
from slo.metrics import SERVICE
from tidegate.core.errors import OutsideError

RUNNING = "running"
"""The state of a delivery that has no ending yet."""

GOLDEN: Mapping[str, str] = {"mean_score": "golden"}
JUDGED: Mapping[str, str] = {"mean_score": "overall"} | {f"{each}_score": str(each) for each in Dimension}
"""Which numbers of a gate are scores of an arm (`canary_mean_score`), and of which dimension: of the golden set in
the offline stage, of a judge in those after it."""

STATES = (RUNNING, *map(str, Ending))
Labels = dict[str, str]
Sample = tuple[Labels, float]


def families(story: DeliveryState, *, delivery: str) -> Iterator[Metric]:
    """Everything that is known now; nothing before the delivery has started. `delivery` is its id in the ledger."""
    if story.started is None:
        return
    version, latest = {"version": story.version}, _latest(story.gates, {"version": story.version})
    states = (({"delivery": delivery, "state": each} | version, each == (story.outcome or RUNNING)) for each in STATES)
    found = [
        InfoMetricFamily(
            "tidegate_delivery",
            "What is being delivered, and against what.",
            value={"delivery": delivery, "model": story.model, "champion": story.champion or ""} | version,
        ),
        _gauge("delivery_state", "1 for the state that the delivery is in.", states),
    ]
    for noun, what in (("weight", "that the version gets"), ("mirror", "whose requests are copied to the version")):
        shared = (({"region": region.name} | version, getattr(region, noun)) for region in story.regions)
        found.append(_gauge(f"delivery_{noun}_percent", f"Users of the region {what}.", shared))
    outcomes = (
        (labels | {"outcome": str(outcome)}, outcome is gate.latest.outcome)
        for labels, gate in latest
        for outcome in GateOutcome
    )
    numbers = (
        (labels | {"number": name}, value)
        for labels, gate in latest
        for name, value in {**gate.latest.auxiliary, **gate.latest.numbers}.items()
    )
    found += [
        _gauge("gate_outcome", "1 for the outcome of the gate's last verdict.", outcomes),
        _gauge("gate_number", "A number of the gate's last verdict, or measured next to it.", numbers),
        _gauge("quality_score", "How good answers are, 0 to 1.", _scores(story, latest)),
    ]
    for family in found:
        # By this label one Prometheus tells this delivery from others.
        family.samples = [each._replace(labels={SERVICE: story.spec, **each.labels}) for each in family.samples]
        yield family


def _scores(story: DeliveryState, latest: Iterable[tuple[Labels, GateState]]) -> Iterator[Sample]:
    for labels, gate in latest:
        known = {**gate.latest.auxiliary, **gate.latest.numbers}
        for noun, dimension in (GOLDEN if labels["stage"] == StageName.OFFLINE else JUDGED).items():
            for role, version in (("stable", story.champion or ""), ("canary", story.version)):
                if (value := known.get(f"{role}_{noun}")) is not None:
                    yield {"dimension": dimension, "region": labels["region"], "role": role, "version": version}, value


def _latest(gates: Iterable[GateState], version: Labels) -> list[tuple[Labels, GateState]]:
    """Of each gate in each stage of a region the one that spoke last: the weights of a canary are one stage."""
    found: dict[tuple[str, ...], tuple[Labels, GateState]] = {}
    for gate in sorted(gates, key=lambda gate: gate.history[-1].at):
        labels = {"gate": gate.name, "stage": StepId.parsed(gate.step).stage, "region": gate.region or ""}
        found[tuple(labels.values())] = labels | version, gate
    return list(found.values())


def _gauge(name: str, documentation: str, samples: Iterable[Sample]) -> Metric:
    family = GaugeMetricFamily(f"tidegate_{name}", documentation)
    for labels, value in samples:
        family.add_sample(family.name, labels, float(value))
    return family


LOOPBACK = "127.0.0.1"
ANY = frozenset({"0.0.0.0", "::", ""})


class _Numbers(Collector):
    """Nothing is computed but when somebody asks."""

    def __init__(self, numbers: Callable[[], Iterable[Metric]]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterable[Metric]:
        return self._numbers()


@asynccontextmanager
async def served_metrics(
    numbers: Callable[[], Iterable[Metric]], host: str = LOOPBACK, port: int = 0
) -> AsyncIterator[str]:
    """Serve `numbers` within the context, from a thread of its own; port 0 takes a free one.

    Returns:
        Where this machine reaches it; `/metrics` is below.

    Raises:
        OutsideError: when nobody can listen there.
    """
    registry = CollectorRegistry()
    registry.register(_Numbers(numbers))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        hint = "name another --metrics-address"
        raise OutsideError(f"cannot serve metrics at {host}:{port}: {error}", hint=hint) from error
    try:
        yield f"http://{LOOPBACK if host in ANY else host}:{server.server_port}"
    finally:
        # In a thread: the server looks only twice a second whether it shall end.
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
