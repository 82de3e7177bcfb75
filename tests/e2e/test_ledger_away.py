"""MLflow, a server of its own, stops or goes before a gate fails on users: they go back all the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest
from e2e.given import Given
from e2e.machine import Machine, until
from e2e.spec import MODEL
from e2e.story import Story
from e2e.then import Then
from e2e.when import When
from fakes.services.mlflow_server import AwayServer

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

LATENCY = {"latency": {"quantile": 0.5, "max_increase": "50%", "tolerance": "25%", "min_requests": 8}}
STAGES = [{"canary": {"weights": [50], "at_least": "0s", "within": "20m", "gates": ["latency"]}}]
CALL_SECONDS = 120.0
"""For which a call to MLflow may hang: a way back that waited for one would be as late as that."""
LATE_SECONDS = 20.0
"""From the verdict to the last user on the canary; for a broken product only, as machines may be busy."""


@dataclass(frozen=True)
class Away:
    """A way for a server to be away."""

    go: Callable[[], None]
    come_back: Callable[[], None]


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwayServer]:
    with AwayServer.running(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, mlflow: AwayServer) -> Iterator[Machine]:
    patience = {"MLFLOW_HTTP_REQUEST_TIMEOUT": f"{CALL_SECONDS:g}"}
    machine = Machine(tmp_path_factory.mktemp("machine"), mlflow.uri, environment=patience)
    yield machine
    assert machine.tidegate("fleet", "down").code == 0
    machine.nothing_runs()


@pytest.fixture(params=["stopped", "gone"])
def away(request: pytest.FixtureRequest, mlflow: AwayServer) -> Away:
    return {"stopped": Away(mlflow.hang, mlflow.answer), "gone": Away(mlflow.end, mlflow.start)}[request.param]


def test_a_verdict_takes_users_back_without_the_ledger_and_is_written_when_it_is_there(
    story: Story, given: Given, when: When, then: Then, away: Away
) -> None:
    given.a_fleet()
    given.a_challenger_that_takes_its_time()
    given.users(fewer=True)
    when.a_delivery_runs(gates={"budget": {"poll_interval": "6s"}, **LATENCY}, stages=STAGES, patience={"end": "3s"})
    when.weight_reaches(50)
    away.go()
    then.exits(1)
    then.region_serves(story.champion)
    then.users_failed(0)
    assert ": rolled-back: canary@eu-west-1/50: gate latency: " in story.ended().out + story.ended().err
    seconds = _late(story)
    story.measured(f"last user on the canary {seconds:+.2f} s from the verdict")
    assert seconds < LATE_SECONDS
    away.come_back()
    # Whatever is typed next writes what could not be written.
    assert story.machine.tidegate("deliver", "--version", "unknown").code == 2
    then.ledger_says("rolled-back", "gate latency: ")
    then.version_is_tagged(story.challenger, "rolled-back", "gate latency: ")
    [delivery] = [each.id for each in story.machine.deliveries.deliveries(MODEL, last=1)]
    kinds = [event.kind for event in story.machine.deliveries.events(delivery)]
    assert kinds.count("failed") == kinds.count("closed") == 1, kinds


def _late(story: Story) -> float:
    """Seconds from the verdict, by the file of events on this machine, to the last user who was sent to the canary."""
    newest = max((story.machine.state / "deliveries").glob("*/events.jsonl"), key=lambda path: path.stat().st_mtime)
    events = [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]
    at = next(event["at"] for event in events if event["data"].get("outcome") == "fail")
    verdict = datetime.fromisoformat(at).timestamp()
    until("everybody who was on the canary is served", story.requests)
    return max(request.started for request in story.requests() if request.version == story.challenger) - verdict
