"""`tidegate rollout ...` against a cluster behind a socket, with a kubeconfig, as a person would type it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import pytest
from e2e.machine import TIDEGATE
from fakes.argo.scene import NAME, canary, http_route, rollout, service
from fakes.argo.simulation import Simulation
from fakes.kube.server import FakeServers, one_region
from fakes.terminal import Said, Tidegate

from rollouts.kube.resources import (
    HTTP_ROUTES,
    ROLLOUTS,
    SERVICES,
)
from tidegate.cli import main

pytestmark = pytest.mark.long

REGION = "eu-west-1"
Settled = Callable[[str], Said]


class Stage:
    """A served region, and its simulated controllers."""

    def __init__(self, servers: FakeServers) -> None:
        self.servers = servers
        self.cluster = servers.api(REGION).cluster
        self.simulation: Simulation
        servers.do(self._build)

    def _build(self) -> None:
        self.simulation = Simulation(self.cluster, start_seconds=0.3, reacts=False)
        for name in (f"{NAME}-stable", f"{NAME}-canary"):
            self.cluster.create(SERVICES, service(name))
        self.cluster.create(HTTP_ROUTES, http_route())
        self.cluster.create(ROLLOUTS, rollout(canary(), replicas=2))
        self._running = asyncio.get_running_loop().create_task(self.simulation.run())

    def close(self) -> None:
        self.servers.do(self._running.cancel)

    def break_plugin(self) -> None:
        self.servers.do(lambda: setattr(self.simulation, "plugin_broken", True))

    def change(self, **spec: Any) -> None:
        self.servers.do(lambda: self.patch(**spec))

    def patch(self, **spec: Any) -> None:
        """As `change`, from the thread of the cluster."""
        self.cluster.patch(ROLLOUTS, NAME, {"spec": spec})


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with one_region(REGION, tmp_path, monkeypatch) as servers:
        stage = Stage(servers)
        yield stage
        stage.close()


@pytest.fixture
def tidegate(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Tidegate:
    """`tidegate rollout ...`; the stage is set, and version 1 is up."""

    def run(*words: str) -> Said:
        capsys.readouterr()
        code = main(["rollout", *words])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    assert run("status", NAME, "--timeout", "20s").code == 0
    return run


@pytest.fixture
def trial(tidegate: Tidegate) -> Tidegate:
    """Version 2 waits at its first pause."""
    said = tidegate("set-image", NAME, "engine=registry.example/engine:2")
    assert (said.code, said.out.partition(";")[0]) == (0, f"{NAME}: updated")
    assert tidegate("status", NAME, "--timeout", "20s").code == 2
    return tidegate


def test_list_has_a_line_for_each(trial: Tidegate) -> None:
    title, line = trial("list").out.splitlines()
    assert title.split()[:5] == ["NAME", "STRATEGY", "HEALTH", "STEP", "SET-WEIGHT"]
    assert line.split()[:6] == [NAME, "canary", "॥", "paused", "1/7", "0"]
    (row,) = trial("list", "--output", "json").json
    assert (row["name"], row["health"]["state"], row["step"]) == (NAME, "paused", 1)


def test_get_shows_the_tree(trial: Tidegate) -> None:
    out = trial("get", NAME).out
    assert "Status:          ॥ paused\nMessage:         CanaryPauseStep\nCause:           step 2 of 7: pause" in out
    assert "  Step:          1/7  pause" in out
    assert "Images:          registry.example/engine:1 (stable)" in out
    assert "├──# revision:2\n│  └──⧉ " in out
    tree = trial("get", NAME, "--output", "json").json["tree"]
    assert [child["name"] for child in tree["children"]] == ["revision:2", "revision:1"]


def test_a_trial_from_pause_to_stable(trial: Tidegate) -> None:
    promoted = trial("promote", NAME, "--expect-step", "1")
    assert (promoted.code, promoted.out) == (0, f"{NAME}: promoted; now paused (CanaryPauseStep): step 4 of 7: pause\n")
    full = trial("promote", NAME, "--full", "--output", "json").json
    assert (full["done"], [sent["subresource"] for sent in full["sent"]]) == ("promoted in full", ["status"])
    assert trial("status", NAME, "--timeout", "20s").out == f"{NAME}: healthy\n"


def test_a_trial_that_is_aborted_and_undone(trial: Tidegate) -> None:
    assert trial("abort", NAME).out.startswith(f"{NAME}: aborted; now degraded (RolloutAborted")
    assert trial("abort", NAME).out.startswith(f"{NAME}: nothing to do, aborted already")
    status = trial("status", NAME, "--output", "json")
    assert (status.code, status.json["outcome"], status.json["exit_code"]) == (1, "degraded", 1)
    assert trial("retry", NAME).code == 0
    assert trial("undo", NAME).out == f"{NAME}: undone; now healthy\n"


def test_what_is_refused_is_told_in_one_line_and_changes_nothing(tidegate: Tidegate) -> None:
    for words, reason in [
        (("abort", NAME), "nothing is in progress in llm: there is nothing to abort; see: tidegate rollout status llm"),
        (
            ("promote", NAME),
            "nothing is in progress in llm: there is nothing to promote; see: tidegate rollout status llm",
        ),
        (("retry", NAME), "llm was not aborted: there is nothing to retry; see: tidegate rollout status llm"),
        (("undo", NAME, "--to-revision", "9"), "unable to find specified revision 9 in history; there are: 1"),
        (("set-image", NAME, "proxy=x"), 'unable to find container named "proxy"; there are: engine'),
    ]:
        said = tidegate(*words)
        assert (said.code, said.out, said.err) == (2, "", f"tidegate: {reason}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("promote",), "which Rollout?; give its NAME, or --spec delivery.yaml"),
        (("promote", NAME, "--region", REGION), "--region needs the spec of a delivery; give --spec delivery.yaml too"),
        (("promote", NAME, "--full", "--skip-step"), "--full, --skip-step and --to-step: only one of them"),
        (("status", NAME, "--timeout", "soon"), "Invalid value for '--timeout': found 'soon'; expected a duration"),
        (("set-image", NAME, "engine"), "found 'engine'; expected CONTAINER=IMAGE"),
    ],
)
def test_wrong_words_are_answered_with_what_is_right(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rollout", *words]) == 2
    assert capsys.readouterr().err.startswith(f"tidegate: {complaint}")


def test_a_rollout_or_context_that_is_not_there(tidegate: Tidegate) -> None:
    missing = tidegate("get", "nobody")
    where = '"nobody" not found; it was looked for in namespace default; -n and --context name other places'
    assert (missing.code, where in missing.err) == (4, True)
    elsewhere = tidegate("get", NAME, "--context", "mars")
    assert (elsewhere.code, "no context mars in" in elsewhere.err) == (2, True)


def test_pause_holds_and_promote_lets_go(trial: Tidegate) -> None:
    assert "now paused (manually paused)" in trial("pause", NAME).out
    assert trial("resume", NAME).out == f"{NAME}: resumed; now paused (CanaryPauseStep): step 2 of 7: pause\n"
    assert trial("resume", NAME).out.startswith(f"{NAME}: nothing to do")


def test_to_step_and_skip_step(trial: Tidegate) -> None:
    assert trial("promote", NAME, "--skip-step").code == 0
    assert trial("promote", NAME, "--to-step", "0").code == 0
    assert trial("status", NAME, "--timeout", "20s", "--output", "json").json["rollout"]["step"] == 1


def test_restart(tidegate: Tidegate) -> None:
    assert tidegate("restart", NAME).out.startswith(f"{NAME}: restarting; now ")


def test_a_controller_that_does_not_get_on_is_stuck(stage: Stage, tidegate: Tidegate) -> None:
    stage.break_plugin()
    stage.change(progressDeadlineSeconds=900)
    said = tidegate("status", NAME, "--stuck-after", "1s", "--timeout", "20s", "--output", "json")
    assert (said.code, said.json["outcome"]) == (4, "stuck")
    assert "traffic plugin argoproj-labs/gatewayAPI" in said.json["rollout"]["health"]["cause"]


def test_time_that_is_over_is_told(stage: Stage, tidegate: Tidegate) -> None:
    stage.break_plugin()
    stage.change(progressDeadlineSeconds=900)
    said = tidegate("status", NAME, "--timeout", "2s")
    assert (said.code, said.out.startswith(f"{NAME}: not there after 2s: progressing")) == (4, True)


@contextmanager
def watching(*options: str) -> Iterator[IO[str]]:
    """What `rollout watch` writes, line by line."""
    with subprocess.Popen([TIDEGATE, "rollout", "watch", NAME, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout
        finally:
            process.terminate()


@pytest.mark.usefixtures("tidegate")
def test_watch_tells_each_change_once(stage: Stage) -> None:
    image = {"spec": {"containers": [{"name": "engine", "image": "registry.example/engine:2"}]}}
    with watching("--output", "json") as told:
        lines = [told.readline()]
        stage.change(template=image)
        while json.loads(lines[-1])["health"]["state"] != "paused":
            lines.append(told.readline())
    states = [json.loads(line)["health"]["state"] for line in lines]
    assert (states[0], "progressing" in states) == ("healthy", True)
    assert all(line != before for before, line in pairwise(lines))
    with watching() as told:
        line = f"{NAME}: paused (CanaryPauseStep): step 2 of 7: pause, step 1/7, weight 0 %, 3 of 2 available\n"
        while (now := told.readline()) != line:
            assert now.startswith(f"{NAME}: ")


def test_watch_ends_with_its_timeout(tidegate: Tidegate) -> None:
    assert tidegate("watch", NAME, "--timeout", "1s").code == 0
