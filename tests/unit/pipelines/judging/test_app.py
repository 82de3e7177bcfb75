"""What `gate serve` answers to Argo Rollouts, to Flagger, to CI and to nonsense."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from fakes.argo.web_metric import AnalysisRun
from fakes.services.flagger import Canary
from starlette.testclient import TestClient

from gates.reports.gate_file import GateFile
from gates.trials import Judge
from pipelines.judging.app import MOST_BYTES, JudgeApp
from tidegate.core.spec import load_spec
from tidegate.testing import FakeClock, FakeEvidence

EXAMPLES = Path(__file__).parents[4] / "examples/gates"
TOKEN = "0f" * 32
ASKED = {"service": "support-llm", "stable": "6", "canary": "7"}
ARGS = {**ASKED, "token": TOKEN}


class Ground:
    """A server that reads the example's gates, and the world that it looks at."""

    def __init__(self, example: str = "argo-rollouts", **limits: Any) -> None:
        spec = load_spec(EXAMPLES / example / "gates.yaml", GateFile)
        self.clock, self.evidence = FakeClock(), FakeEvidence()
        for stable in ("6", "support-llm-primary"):
            self.evidence.serves("stable", stable)
        look = spec.gates.budget.poll_interval
        assert look is not None
        # Of requests alone: how times are judged, others test.
        terms = spec.model_copy(update={"gates": spec.gates.model_copy(update={"latency": None})})
        judge = Judge(terms.terms(counted_by="proxy"), look, self.evidence, self.clock, **limits)
        self.refused: list[str] = []
        app = JudgeApp(judge, needs_region=False, refused=self.refused.append)
        hosts = {"tidegate-judge.tidegate.svc"}
        self.client = TestClient(
            app.behind_door(hosts=hosts, password=TOKEN),
            base_url="http://tidegate-judge.tidegate.svc:8095",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    def serve(self, *, failed: float, canary: str = "7", per_second: float = 2) -> None:
        """From now on."""
        self.evidence.serves("canary", canary, failed=failed, per_second=per_second, since=self.clock.now())

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """As a controller sends it, without what the client of the test would add."""
        client = TestClient(self.client.app, base_url=f"http://{urlsplit(url).netloc}")
        answer = client.request(method, url, headers=dict(headers), content=body)
        return answer.status_code, answer.content

    def minutes(self, count: int, each: Callable[[], str], *, until: str) -> str:
        """Whatever it says at last; at most so many minutes pass."""
        said = each()
        for _ in range(count):
            if said == until:
                break
            self.clock.elapsed += 60
            said = each()
        return said


def template(name: str) -> Mapping[str, Any]:
    documents = yaml.safe_load_all((EXAMPLES / "argo-rollouts/analysis-templates.yaml").read_text())
    return next(document for document in documents if document["metadata"]["name"] == name)


def canary(ground: Ground) -> Canary:
    text = (EXAMPLES / "flagger/canary.yaml").read_text().replace(":TOKEN@", f":{TOKEN}@")
    return Canary(yaml.safe_load(text), "7b9f", ground.send)


def run_of(ground: Ground, name: str, **more: str) -> AnalysisRun:
    return AnalysisRun(template(name), {**ARGS, **more}, ground.send)


@pytest.mark.parametrize("name", ["tidegate-watch", "tidegate-pass"])
def test_argo_rollouts_takes_back_what_is_worse(name: str) -> None:
    ground = Ground()
    ground.serve(failed=0.3)
    run = run_of(ground, name)
    assert run.measure() == "Running"
    assert ground.minutes(10, run.measure, until="Failed") == "Failed"
    assert json.loads(run.values[-1])["sentence"].startswith("canary failed"), "kubectl describe shows why"


def test_argo_rollouts_lets_a_good_canary_go_on_until_its_last_step() -> None:
    ground = Ground()
    ground.serve(failed=0)
    watch, step = run_of(ground, "tidegate-watch"), run_of(ground, "tidegate-pass")
    assert (watch.measure(), step.measure(), step.counts["Inconclusive"]) == ("Running", "Running", 1)
    assert ground.minutes(60, step.measure, until="Successful") == "Successful"
    assert (watch.measure(), watch.terminate()) == ("Running", "Successful")


def test_a_step_without_a_verdict_pauses_the_rollout_and_never_succeeds() -> None:
    slow, nobody = Ground(within=timedelta(minutes=2)), Ground()
    slow.serve(failed=0, per_second=0.01)
    for ground, told in ((slow, "inconclusive"), (nobody, "no series of canary version 7")):
        step = run_of(ground, "tidegate-pass")
        assert ground.minutes(100, step.measure, until="Inconclusive") == "Inconclusive"
        assert (step.counts, told in step.values[-1]) == ({"Inconclusive": 61}, True)
        assert ground.minutes(20, run_of(ground, "tidegate-watch").measure, until="Failed") == "Running"


def test_argo_rollouts_endures_a_judge_or_a_prometheus_that_is_away_for_a_while() -> None:
    ground = Ground()
    ground.serve(failed=0.3)
    run = run_of(ground, "tidegate-watch")
    run.measure()
    ground.evidence.gone = True
    assert ground.minutes(30, run.measure, until="Failed") == "Running"
    assert json.loads(run.values[-1])["sentence"] == "Prometheus is not there"
    ground.evidence.gone = False
    assert run.measure() == "Failed", "what was missed is read later"
    refused = run_of(ground, "tidegate-watch", canary="6")
    assert ground.minutes(20, refused.measure, until="Error") == "Error"
    assert ground.refused[-1] == "/v1/verdict: 400: stable and canary: found '6' twice; expected two versions"


def test_flagger_promotes_what_is_proven() -> None:
    ground = Ground("flagger")
    ground.serve(failed=0, canary="support-llm")
    trial = canary(ground)
    assert trial.advance() == "Progressing"
    assert trial.advance() == "WaitingPromotion"
    assert ground.minutes(60, trial.advance, until="Succeeded") == "Succeeded"
    assert (trial.failed_checks, trial.asked[-1]) == (0, ("confirm-promotion", 200))


def test_flagger_takes_back_what_is_worse_at_once() -> None:
    ground = Ground("flagger")
    ground.serve(failed=0.3, canary="support-llm")
    trial = canary(ground)
    assert ground.minutes(20, trial.advance, until="Failed") == "Failed"
    assert ("rollback", 200) in trial.asked
    assert trial.failed_checks < 5


def test_flagger_takes_back_what_cannot_be_judged() -> None:
    ground = Ground("flagger")
    trial = canary(ground)
    assert ground.minutes(20, trial.advance, until="Failed") == "Failed"
    assert trial.failed_checks == 5
    assert ("rollback", 200) not in trial.asked


@pytest.mark.parametrize(
    ("hook", "yes"),
    [
        ("pre-rollout", {"pass", "running", "inconclusive", "fail"}),
        ("rollout", {"pass", "running"}),
        ("confirm-traffic-increase", {"pass"}),
        ("confirm-promotion", {"pass"}),
        ("rollback", {"fail"}),
        ("post-rollout", {"pass", "running", "inconclusive", "error", "fail"}),
    ],
)
def test_each_hook_of_flagger_has_its_own_yes(hook: str, yes: set[str]) -> None:
    said = set()
    for failed, seconds, per_second in ((0, 1200, 2), (0, 60, 0.1), (0, 1500, 0.0001), (0.5, 1200, 2), (0, 0, 0)):
        ground = Ground(within=timedelta(minutes=20))
        if per_second:
            ground.serve(failed=failed, per_second=per_second)
        ground.clock.elapsed += seconds
        payload = {"name": "support-llm", "namespace": "b", "metadata": {"stable": "6", "canary": "7"}}
        answer = ground.client.post(f"/v1/flagger/{hook}", json=payload)
        assert answer.status_code in (200, 412)
        if answer.status_code == 200:
            said.add(answer.json()["outcome"])
    assert said == yes


def test_ci_asks_until_there_is_a_verdict() -> None:
    ground = Ground()
    ground.serve(failed=0)
    ground.clock.elapsed += 60
    first = ground.client.post("/v1/verdict", json=ASKED)
    assert (first.status_code, first.json()["outcome"], first.json()["gates"]) == (
        200,
        "running",
        {"errors": "running"},
    )
    assert set(first.json()) == {"outcome", "gate", "sentence", "evidence", "needs", "gates"}
    ground.clock.elapsed += 3600
    last = ground.client.get("/v1/verdict", params={**ASKED, "since": "2026-01-01T00:00:00Z"})
    assert (last.json()["outcome"], last.json()["evidence"]["windows"]) == ("pass", 61)
    labels = {**ASKED, "stable": {"version": "6"}, "canary": {"version": "7"}}
    assert "version=6" in ground.client.post("/v1/verdict", json=labels).json()["sentence"]


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"no json", 400, "body: invalid json"),
        (b"[]", 400, "body: "),
        (b"{}", 400, "service: field required"),
        (b'{"service": "a", "stable": "1", "canary": "2", "kanary": "3"}', 400, "kanary: "),
        (b'{"service": "a\\nb", "stable": "1", "canary": "2"}', 400, "service: "),
        (b'{"service": "a", "stable": "b=\\"c", "canary": "2", "since": "soon"}', 400, "since: "),
        (b'{"service": "", "stable": "1", "canary": "2"}', 400, "service: "),
        (b'{"name": "' + b"a" * MOST_BYTES + b'"}', 413, "a body of more than 16,384 bytes"),
    ],
)
def test_nonsense_is_told_and_hurts_nobody(body: bytes, status: int, problem: str) -> None:
    ground = Ground()
    answer = ground.client.post("/v1/verdict", content=body)
    assert answer.status_code == status
    assert answer.json()["problem"].startswith(problem)
    assert answer.json()["outcome"] == "error"
    text = ground.client.get("/metrics").text
    assert 'outcome="bad request",path="/v1/verdict"' in text or status == 413
    ground.serve(failed=0)
    ground.client.post("/v1/verdict", json=ASKED)
    assert 'answers_total{outcome="running",path="/v1/verdict"} 1.0' in ground.client.get("/metrics").text


def test_an_unknown_hook_and_a_canary_without_arms_are_told() -> None:
    client = Ground().client
    payload = {"name": "a", "namespace": "b", "phase": "Progressing", "checksum": "c", "metadata": {"stable": "1"}}
    assert "known: pre-rollout" in client.post("/v1/flagger/event", json=payload).json()["hint"]
    answer = client.post("/v1/flagger/rollout", json=payload)
    assert (answer.status_code, answer.json()["problem"][:33]) == (400, "metadata: canary: field required;")


def test_who_does_not_know_the_token_learns_nothing() -> None:
    ground = Ground()
    unknown = TestClient(ground.client.app, base_url="http://127.0.0.1:8095")
    for path in ("/v1/verdict", "/metrics"):
        assert unknown.get(path, params=ASKED).status_code == 401
    assert unknown.get("/healthz").json() == {"status": "ok"}


def test_both_templates_are_asked_with_what_the_strategy_gives() -> None:
    strategy = yaml.safe_load((EXAMPLES / "argo-rollouts/strategy.yaml").read_text())["strategy"]["canary"]
    asked = [strategy["analysis"], *(step["analysis"] for step in strategy["steps"] if "analysis" in step)]
    for analysis in asked:
        (used,) = analysis["templates"]
        wanted = {arg["name"] for arg in template(used["templateName"])["spec"]["args"] if "valueFrom" not in arg}
        assert {arg["name"] for arg in analysis["args"]} == wanted
