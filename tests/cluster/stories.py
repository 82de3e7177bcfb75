"""What may happen to a delivery on clusters, told from its users' side.

Each story takes a model of its own through real pods, endpoints, a real gateway and a real Prometheus, and answers with
what its users saw. Only the controller of Rollouts is simulated.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.users import Asked, told
from e2e.machine import Command, Finished
from fakes.services.mlflow_server import answer, hang
from fakes.waiting import until
from mlflow import MlflowClient

from registry.conventions import CARRIER, CHAMPION, ENGINE_IMAGE, HEARTBEAT, MODEL, STATE, VERSION
from registry.model import Event

UNGATED = ({"offline": {"dataset": "golden.jsonl", "gates": ["quality"]}},)
"""Stages that take seconds: what a story is about comes before or after them."""
CANARY = ({"canary": {"weights": [50], "within": "15m", "gates": ["latency", "errors"]}},)
"""Users meet the version before anything else could judge it."""
BACK_SECONDS = 60.0
"""From a verdict to the last user request that begins on the canary, for a broken product only: the figure itself is
told, and is that of a machine that other stories keep busy."""


@dataclass(frozen=True)
class Told:
    """How a story ended, in figures of which a table is made."""

    ending: str
    users: str
    note: str = ""


def healthy(bed: Bed) -> Told:
    """A healthy version goes to two regions, wave after wave, and back again to the warm one."""
    model, first = model_served(bed, "healthy", waves=[[each] for each in bed.around.clusters])
    with model.users():
        second = model.version()
        done = delivers(model, 0, "delivered")
        model.exactly(second, previous=first)
        one, other = model.regions
        promoted = next(event.at for event in model.events("done") if event.step == f"promote@{one}").timestamp()
        met = [asked.started for asked in model.asked(other) if asked.version == second]
        assert met and min(met) > promoted, "users of the second wave met the version before the first had it"
        warm = {region: model.pods(region) for region in model.regions}
        back = model.start("rollback", "delivery.yaml", "--to", "previous", "--yes").finish()
        assert back.code == 0, back.err
        model.exactly(first)
        for region in model.regions:
            started = [pod for pod in model.pods(region).items() if pod[0] not in warm[region]]
            assert not started, f"going back to a warm version started {started}; there were {warm[region]}"
    return told_of(model, f"exit {done.code}", note="then back to the warm version: no new pod")


def slow(bed: Bed) -> Told:
    """Three times slower to the first token: the gate on latency sees it with users on it, who go back at once."""
    return _taken_back(bed, "slow", CANARY, "gate latency", ttft=0.09)


def failing(bed: Bed) -> Told:
    """It answers a quarter of its requests with an error: those who met it failed, and no user after the verdict."""
    return _taken_back(bed, "failing", CANARY, "gate errors", may_fail=True, errors=0.25, errors_after=10)


def crashing(bed: Bed) -> Told:
    """Its engine ends while it starts: no user meets it."""
    return _taken_back(
        bed, "crashing", UNGATED, "does not start", ends=(4, "failed"), fail="CUDA error: no kernel image"
    )


def dying(bed: Bed) -> Told:
    """Its engines die with users on them: streams on them are cut, and no other user is hurt."""
    patient = [{"canary": {"weights": [50], "at_least": "5m", "within": "6m", "gates": ["latency", "errors"]}}]
    return _taken_back(bed, "dying", patient, "", may_fail=True, die_after=25)


def aborted(bed: Bed) -> Told:
    """Three deliveries are rolled back in a row; the version before the champion stays warm all the while."""
    model, first = model_served(bed, "aborted", stages=UNGATED)
    (region,) = model.regions
    with model.users():
        second = model.version()
        delivers(model, 0, "delivered")
        warm = {pod for pod, version in model.pods(region).items() if version == first}
        assert warm, "nothing is warm after a promotion"
        for _ in range(3):
            model.version(wrong=1.0)
            done = delivers(model, 1, "rolled-back")
            model.exactly(second, previous=first)
        back = model.start("rollback", "delivery.yaml", "--to", "previous", "--yes").finish()
        assert back.code == 0, back.err
        model.exactly(first)
        served = {pod for pod, version in model.pods(region).items() if version == first}
        assert served == warm, f"going back started {sorted(served - warm)}"
    return told_of(model, f"exit {done.code}", note="then back to the version before: no new pod")


def killed(bed: Bed) -> Told:
    """`kill -9` of tidegate in each step, and `resume` each time; it is delivered in the end."""
    stages = [*UNGATED, {"canary": {"weights": [50], "at_least": "3s", "within": "15m", "gates": ["errors"]}}]
    model, first = model_served(bed, "killed", stages=stages)
    with model.users():
        second = model.version()
        steps, running = model.steps(), model.deliver()
        for step in steps:
            model.reaches(step, running)
            running.send(signal.SIGKILL)
            running.finish()
            running = model.start("resume", model.delivery().id, "--output", "json")
        done = running.finish()
        assert done.code == 0, done.err
        model.exactly(second, previous=first)
    return told_of(model, f"exit {done.code}", note=f"killed {len(steps)} times")


def interrupted(bed: Bed) -> Told:
    """Ctrl-C, a closed terminal, or a node that drains, in each step: every time all users are back on the champion."""
    stages = [*UNGATED, {"canary": {"weights": [50], "at_least": "3s", "within": "15m", "gates": ["errors"]}}]
    model, first = model_served(bed, "interrupted", stages=stages)
    with model.users():
        model.version()
        steps = model.steps()
        for step, number in zip(steps[:-1], cycle((signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT))):
            running = model.deliver()
            model.reaches(step, running)
            running.send(number)
            done = running.finish()
            assert (done.code, model.delivery().outcome) == (130, "interrupted"), done.err
            model.exactly(first)
    return told_of(model, f"exit {done.code}", note=f"interrupted {len(steps) - 1} times")


def forged(bed: Bed) -> Told:
    """The carrier is killed with half of the users on the canary, and somebody has written into MLflow: a run that
    cannot be read, another that names a version with an image of his as the champion, and the delivery's is deleted.
    `rollback`, and a workflow's `stage close`, take users back all the same, and move nobody the second time."""
    model, first = model_served(bed, "forged", stages=CANARY)
    (region,) = model.regions
    with model.users():
        second = model.version()
        killed = model.deliver()
        model.users_are_on(second, region, killed)
        back = [_back_in_spite_of(model, killed, "rollback", "delivery.yaml")]
        model.exactly(first)
        again = model.start("rollback", "delivery.yaml").finish()
        assert (again.code, "version 1" in again.out) == (0, True), f"{again.out}\n{again.err}"
        model.exactly(first)
        opened = model.start("stage", "open", "delivery.yaml", "--key", "k", "--output", "json").finish()
        assert opened.code == 0, opened.err
        delivery = str(json.loads(opened.out)["delivery"])
        for step in ("build", f"deploy@{region}", f"smoke@{region}"):
            done = model.start("stage", step, "--delivery", delivery, "--key", "k").finish()
            assert done.code == 0, done.err
        met = len([asked for asked in model.asked(region) if asked.version == second])
        killed = model.start("stage", f"canary@{region}/50", "--delivery", delivery, "--key", "k")
        until("users are on the canary", lambda: sum(one.version == second for one in model.asked(region)) > met)
        back.append(_back_in_spite_of(model, killed, "stage", "close", "delivery.yaml", "--key", "k"))
        model.exactly(first)
    return told_of(
        model, "exit 0", note=f"last user on the canary {back[0]:+.2f} and {back[1]:+.2f} s from the command"
    )


def _back_in_spite_of(model: DeliveredModel, killed: Command, *command: str) -> float:
    """Seconds from the command to the last user request that began on the canary."""
    killed.send(signal.SIGKILL)
    killed.finish()
    client, delivery = MlflowClient(model.bed.tracking_uri), model.delivery()
    experiment = client.get_run(delivery.id).info.experiment_id
    evil = client.create_model_version(model.name, "s3://nowhere/model").version
    client.set_model_version_tag(model.name, evil, ENGINE_IMAGE, f"evil.example.net/miner@sha256:{'6' * 64}")
    client.create_run(experiment, tags={MODEL: model.name})
    carrier = {"mark": "evil", "at": "2026-01-01T00:00:00Z", "host": "ci", "pid": 1, "machine": ""}
    tags = {MODEL: model.name, VERSION: "2", CHAMPION: str(evil), CARRIER: json.dumps(carrier), STATE: "running"}
    client.create_run(experiment, tags=tags | {HEARTBEAT: "2026-01-01T00:00:00+00:00"})
    client.delete_run(delivery.id)
    typed = model.now()
    done = model.start(*command).finish()
    assert done.code == 0, f"{done.out}\n{done.err}"
    seconds = max(one.started for one in model.asked() if one.version == delivery.version) - typed
    assert seconds <= BACK_SECONDS, f"a user met version {delivery.version} {seconds:.2f} s after the command"
    return seconds


def without_controller(bed: Bed) -> Told:
    """The controller of Rollouts is killed with half of the users on the canary; then a gate fails."""
    region = list(bed.around.clusters)[-1]
    with bed.apart("controller") as regions:
        model, first = model_served(regions, "without-controller", waves=[[region]], stages=CANARY)
        with model.users():
            bad = model.version(ttft=0.09)
            running = model.deliver("--output", "json")
            model.users_are_on(bad, region, running)
            asyncio.run(regions.controllers[region].kill())
            done = running.finish()
            assert done.code == 1, f"exit {done.code}: {done.err}"
            seconds = late(model, bad)
            asyncio.run(regions.controllers[region].start())
            # As the delivery said: what is left of the way back is the controller's to do.
            back = model.start("rollback", "delivery.yaml").finish()
            assert back.code == 0, back.err
            model.exactly(first)
        return told_of(model, f"exit {done.code}", note=f"last user on the canary {seconds:+.2f} s from the verdict")


def without_ledger(bed: Bed) -> Told:
    """MLflow stops answering with half of both regions' users on the canary; then a gate fails in one of them."""
    with bed.apart("ledger", ledger=True) as regions:
        model, first = model_served(regions, "without-ledger", waves=[list(bed.around.clusters)], stages=CANARY)
        with model.users():
            bad = model.version(ttft=0.09)
            running = model.deliver("--output", "json")

            def everywhere() -> bool:
                assert running.runs, running.finish()
                return all(any(one.version == bad for one in model.asked(region)) for region in model.regions)

            until("users of every region meet the canary", everywhere)
            hang(regions.mlflow)
            try:
                done = running.finish()
                assert done.code == 1, f"exit {done.code}: {done.err}"
                assert "rolled-back" in done.out and "gate latency" in done.out, done.out
                seconds = max(late(model, bad, model.told_here(), region) for region in model.regions)
            finally:
                answer(regions.mlflow)
            model.exactly(first)
            # Whatever is typed next writes what MLflow has not taken.
            model.start("status", "delivery.yaml").finish()
            assert (model.delivery().outcome, "gate latency" in (model.delivery().reason or "")) == (
                "rolled-back",
                True,
            )
            kinds = [event.kind for event in model.events()]
            assert kinds.count("closed") == 1, kinds
        return told_of(model, f"exit {done.code}", note=f"last user on a canary {seconds:+.2f} s from the verdict")


def region_away(bed: Bed) -> Told:
    """The second region's API server is killed with half of its users on the canary; it comes back later."""
    one, other = bed.around.clusters
    there = bed.around.clusters[other]
    assert there.stop, "that API server must not be stopped"
    model, first = model_served(bed, "region-away", waves=[[one], [other]], stages=CANARY)
    with model.users():
        second = model.version()
        running = model.deliver("--output", "json")
        model.users_are_on(second, other, running)
        bed.stop(other)
        try:
            done = running.finish()
            assert done.code == 4, f"exit {done.code}: {done.err}"
        finally:
            bed.start(other)
        back = model.start("rollback", "delivery.yaml").finish()
        assert back.code == 0, back.err
        model.exactly(first)
    return told_of(
        model, f"exit {done.code}", note="the other region went back by itself, this one once it could be reached"
    )


TOGETHER: dict[str, Callable[[Bed], Told]] = {
    story.__name__: story
    for story in (
        *(healthy, without_ledger, without_controller, slow, crashing),
        *(failing, dying, aborted, killed, interrupted, forged),
    )
}
"""Those that leave everything alone that others share; those with most to wait for come first."""
ALONE: dict[str, Callable[[Bed], Told]] = {"region_away": region_away}


def model_served(
    bed: Bed, name: str, *, waves: Sequence[Sequence[str]] | None = None, stages: object = None
) -> tuple[DeliveredModel, str]:
    """A model whose first version serves every region."""
    model = DeliveredModel(bed, name, waves or [[next(iter(bed.around.clusters))]])
    if stages is not None:
        model.change(stages=list(stages))  # type: ignore[call-overload]
    first = model.version("champion")
    model.serve(first)
    return model, first


def delivers(model: DeliveredModel, code: int, outcome: str) -> Finished:
    """How `tidegate deliver` ended: as it should."""
    done = model.deliver("--output", "json").finish()
    assert (done.code, model.delivery().outcome) == (code, outcome), f"{done.out}\n{done.err}"
    return done


def _taken_back(
    bed: Bed,
    name: str,
    stages: object,
    reason: str,
    *,
    may_fail: bool = False,
    ends: tuple[int, str] = (1, "rolled-back"),
    **ways: object,
) -> Told:
    model, first = model_served(bed, name, stages=stages)
    with model.users():
        bad = model.version(**ways)
        done = delivers(model, *ends)
        assert reason in (model.delivery().reason or ""), model.delivery().reason
        seconds = late(model, bad)
        model.exactly(first)
    met = any(asked.version == bad for asked in model.asked())
    note = f"last user on the canary {seconds:+.2f} s from the verdict" if met else "no user met it"
    return told_of(model, f"exit {done.code}", note=note, blamed=bad if may_fail else None)


def late(model: DeliveredModel, bad: str, events: Sequence[Event] | None = None, region: str | None = None) -> float:
    """Seconds from the verdict to the last user request that began on the canary; `events` are the ledger's."""
    told = model.events() if events is None else events
    verdict = next(event.at for event in told if event.kind == "failed").timestamp()
    on_canary = [asked.started for asked in model.asked(region) if asked.version == bad]
    seconds = max(on_canary, default=verdict) - verdict
    assert seconds <= BACK_SECONDS, f"a user met version {bad} {seconds:.2f} s after the verdict"
    return seconds


def told_of(model: DeliveredModel, how: str, *, note: str, blamed: str | None = None) -> Told:
    """Only requests that a failing version answered or cut have failed; and the stable was never without engines."""
    asked = model.asked()
    innocent = [each for each in asked if each.failed and not _blamed(each, blamed)]
    assert not innocent, f"{told(asked)}; the first: {innocent[0]}"
    fewest = [watch.fewest for watch in model.endpoints.values()]
    assert all(fewest), f"fewest endpoints of the stable: {fewest}"
    return Told(ending=f"{model.delivery().outcome}, {how}", users=told(asked), note=note)


def _blamed(asked: Asked, version: str | None) -> bool:
    return version is not None and asked.version in (version, None)
