"""What `gate serve` answers to Argo Rollouts, to Flagger, to CI and to nonsense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from fakes.argo.web_metric import AnalysisRun
from fakes.services.flagger import Canary
from starlette.testclient import TestClient

from gates.reports.gate_file import GateFile
from gates.sessions.model import SessionLimits
from gates.sessions.registry import Sessions, SessionTerms
from pipelines.judging.app import MOST_BYTES, JudgeApp
from tidegate.core.spec import load_spec
from tidegate.testing import FakeClock, FakeEvidence

EXAMPLES = Path(__file__).parents[4] / "examples/gates"
TOKEN = "0f" * 32
ANSWERS = {"name": "support-llm", "stable": "6", "canary": "7"}
ARGS = {"name": "support-llm", "namespace": "serving", "stable": "6", "canary": "7", "run": "12", "token": TOKEN}


class Ground:
    """A server that reads the example's gates, and the world that it looks at."""

    def __init__(self, folder: Path, example: str = "argo-rollouts", **limits: object) -> None:
        spec = load_spec(EXAMPLES / example / "gates.yaml", GateFile)
        self.clock, self.evidence = FakeClock(), FakeEvidence()
        for stable in ("6", "support-llm-primary"):
            self.evidence.serves("stable", stable)
        look = spec.gates.budget.poll_interval
        assert look is not None
        # Of requests alone: how times are judged, others test.
        terms = spec.model_copy(update={"gates": spec.gates.model_copy(update={"latency": None})})
        self.sessions = Sessions(
            SessionTerms(terms.terms(counted_by="proxy"), look),
            self.evidence,
            folder,
            self.clock,
            limits=SessionLimits.model_validate(limits),
        )
        self.refused: list[str] = []
        app = JudgeApp(
            self.sessions, retry_seconds=look.total_seconds(), needs_region=False, refused=self.refused.append
        )
        hosts = {"tidegate-gate.tidegate.svc"}
        self.client = TestClient(
            app.behind_door(hosts=hosts, password=TOKEN),
            base_url="http://tidegate-gate.tidegate.svc:8095",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    def serve(self, *, failed: float, stable: str = "6", canary: str = "7") -> None:
        self.evidence.serves("stable", stable)
        self.evidence.serves("canary", canary, failed=failed)

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


def test_argo_rollouts_takes_back_what_is_worse(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.serve(failed=0.3)
    run = run_of(ground, "tidegate-watch")
    assert run.measure() == "Running"
    assert ground.minutes(10, run.measure, until="Failed") == "Failed"
    assert run.values[-1] == '"fail"'


def test_argo_rollouts_lets_a_good_canary_go_on_until_its_last_step(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.serve(failed=0)
    run = run_of(ground, "tidegate-watch")
    assert ground.minutes(60, run.measure, until="Failed") == "Running"
    assert (run.values[0], run.values[-1], run.terminate()) == ('"running"', '"pass"', "Successful")


def test_a_step_of_argo_rollouts_waits_for_the_verdict(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.serve(failed=0)
    run = run_of(ground, "tidegate-pass", weight="5")
    assert run.measure() == "Running"
    assert run.values == ["received non 2xx response code: 503"]
    assert ground.minutes(60, run.measure, until="Successful") == "Successful"
    bad = run_of(ground, "tidegate-pass", weight="5", canary="8")
    ground.serve(failed=0.3, canary="8")
    assert ground.minutes(60, bad.measure, until="Failed") == "Failed"


def test_a_step_without_a_verdict_never_succeeds(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.evidence.serves("stable", "6")
    assert ground.minutes(100, run_of(ground, "tidegate-pass", weight="5").measure, until="Error") == "Error"


def test_argo_rollouts_pauses_when_time_is_over(tmp_path: Path) -> None:
    ground = Ground(tmp_path, within=120)
    ground.evidence.serves("stable", "6")
    for name, more in (("tidegate-watch", {}), ("tidegate-pass", {"weight": "5"})):
        run = run_of(ground, name, **more)
        assert ground.minutes(10, run.measure, until="Inconclusive") == "Inconclusive"


def test_argo_rollouts_endures_a_prometheus_that_is_away_for_a_while(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.serve(failed=0)
    run = run_of(ground, "tidegate-watch")
    run.measure()
    ground.evidence.gone = True
    assert ground.minutes(9, run.measure, until="Error") == "Running"
    ground.evidence.gone = False
    assert run.measure() == "Running"
    assert run.counts["Error"] == 9
    ground.evidence.gone = True
    assert ground.minutes(20, run.measure, until="Error") == "Error"


def test_argo_rollouts_counts_a_canary_without_series_as_an_error(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    run = run_of(ground, "tidegate-watch")
    assert ground.minutes(11, run.measure, until="Error") == "Running"
    ground.evidence.serves("canary", "7")
    ground.clock.elapsed += 60
    assert (run.measure(), run.counts["Error"]) == ("Running", 10)
    other = run_of(ground, "tidegate-watch", stable="5")
    assert ground.minutes(11, other.measure, until="Error") == "Error"
    assert ground.refused[-1] == (
        "/v1/verdict: 400: errors: nothing of stable version 5; check `metrics.sources` of the gates, and `stable`"
    )


def test_both_templates_are_asked_with_what_the_strategy_gives(tmp_path: Path) -> None:
    strategy = yaml.safe_load((EXAMPLES / "argo-rollouts/strategy.yaml").read_text())["strategy"]["canary"]
    asked = [strategy["analysis"], *(step["analysis"] for step in strategy["steps"] if "analysis" in step)]
    for analysis in asked:
        (used,) = analysis["templates"]
        wanted = {arg["name"] for arg in template(used["templateName"])["spec"]["args"] if "valueFrom" not in arg}
        assert {arg["name"] for arg in analysis["args"]} == wanted


def test_flagger_promotes_what_is_proven_and_ends_its_session(tmp_path: Path) -> None:
    ground = Ground(tmp_path, "flagger")
    ground.serve(failed=0, stable="support-llm-primary", canary="support-llm")
    trial = canary(ground)
    assert trial.advance() == "Progressing"
    assert trial.advance() == "WaitingPromotion"
    assert ground.minutes(60, trial.advance, until="Succeeded") == "Succeeded"
    assert trial.failed_checks == 0
    assert trial.asked[-2:] == [("confirm-promotion", 200), ("post-rollout", 200)]
    assert ground.sessions.count() == 0


def test_flagger_takes_back_what_is_worse_at_once(tmp_path: Path) -> None:
    ground = Ground(tmp_path, "flagger")
    ground.serve(failed=0.3, stable="support-llm-primary", canary="support-llm")
    trial = canary(ground)
    assert ground.minutes(20, trial.advance, until="Failed") == "Failed"
    assert ("rollback", 200) in trial.asked
    assert trial.failed_checks < 5


def test_flagger_takes_back_what_has_no_verdict_in_time(tmp_path: Path) -> None:
    ground = Ground(tmp_path, "flagger", within=120)
    ground.evidence.serves("stable", "support-llm-primary")
    trial = canary(ground)
    assert ground.minutes(20, trial.advance, until="Failed") == "Failed"
    assert trial.failed_checks == 5
    assert ("rollback", 200) not in trial.asked


def test_another_revision_of_a_flagger_canary_is_another_session(tmp_path: Path) -> None:
    ground = Ground(tmp_path, "flagger")
    for checksum in ("a", "b"):
        trial = canary(ground)
        trial.checksum = checksum
        trial.advance()
    assert ground.sessions.count() == 2


def test_ci_asks_again_until_there_is_a_conclusion(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.serve(failed=0)
    first = ground.client.post("/v1/conclusion", json=ANSWERS)
    assert (first.status_code, first.headers["Retry-After"], first.json()["outcome"]) == (503, "60", "running")
    ground.clock.elapsed += 3600
    last = ground.client.get("/v1/conclusion", params=ANSWERS)
    assert (last.status_code, last.json()["outcome"], last.json()["batches"]) == (200, "pass", 60)
    assert [each["key"]["canary"] for each in ground.client.get("/v1/sessions").json()] == ["7"]
    assert ground.client.post("/v1/close", json=ANSWERS).json() == {"closed": True}


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"no json", 400, "body: invalid json"),
        (b"[]", 400, "body: "),
        (b"{}", 400, "name: field required"),
        (b'{"name": "a", "stable": "1", "canary": "2", "kanary": "3"}', 400, "kanary: "),
        (b'{"name": "a\\nb", "stable": "1", "canary": "2"}', 400, "name: "),
        (b'{"name": "", "stable": "1", "canary": "2"}', 400, "name: "),
        (b'{"name": "' + b"a" * MOST_BYTES + b'"}', 413, "a body of more than 16,384 bytes"),
    ],
)
def test_nonsense_is_told_and_hurts_nobody(tmp_path: Path, body: bytes, status: int, problem: str) -> None:
    ground = Ground(tmp_path)
    answer = ground.client.post("/v1/verdict", content=body)
    assert answer.status_code == status
    assert answer.json()["problem"].startswith(problem)
    assert answer.json()["outcome"] == "error"
    assert ground.sessions.count() == 0
    assert ground.client.post("/v1/verdict", json=ANSWERS).json()["outcome"] == "running"


def test_an_unknown_hook_and_a_canary_without_arms_are_told(tmp_path: Path) -> None:
    client = Ground(tmp_path).client
    payload = {"name": "a", "namespace": "b", "phase": "Progressing", "checksum": "c", "metadata": {"stable": "1"}}
    assert "known: pre-rollout" in client.post("/v1/flagger/event", json=payload).json()["hint"]
    answer = client.post("/v1/flagger/rollout", json=payload)
    assert (answer.status_code, answer.json()["problem"][:33]) == (400, "metadata: canary: field required;")


def test_who_does_not_know_the_token_learns_nothing(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    unknown = TestClient(ground.client.app, base_url="http://127.0.0.1:8095")
    for path in ("/v1/verdict", "/v1/sessions", "/metrics"):
        assert unknown.get(path, params=ANSWERS).status_code == 401
    assert unknown.get("/healthz").json() == {"status": "ok"}
    assert ground.sessions.count() == 0


def test_numbers_say_what_was_answered(tmp_path: Path) -> None:
    ground = Ground(tmp_path, sessions=1)
    ground.client.post("/v1/verdict", json=ANSWERS)
    refused = ground.client.post("/v1/verdict", json={**ANSWERS, "run": "2"})
    assert (refused.status_code, refused.json()["problem"]) == (429, "1 sessions are open already")
    text = ground.client.get("/metrics").text
    assert 'answers_total{outcome="running",path="/v1/verdict"} 1.0' in text
    assert 'answers_total{outcome="too many requests",path="/v1/verdict"} 1.0' in text
    assert "tidegate_gate_serve_sessions 1.0" in text
    assert 'tidegate_gate_serve_outcomes{outcome="running"} 1.0' in text
