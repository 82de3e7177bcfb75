"""Gates whose question is asked outside, of engines: a command, a web service, and a task of a harness."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
import yaml
from e2e.given import Given
from e2e.spec import MODEL, PROMPTS, REGION
from e2e.story import Story
from e2e.then import Then
from e2e.when import When
from fakes import harness_program
from fakes.services.http import QuietHandler, answering

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

SECRET = "Bearer s3cret-of-the-team"
CHECK = f"""
import json, os, sys, urllib.request

question = json.load(sys.stdin)
assert question["stable"]["url"] == os.environ["TIDEGATE_STABLE_URL"]
assert "MLFLOW_TRACKING_URI" not in os.environ
print("asked with", os.environ["TIDEGATE_SPEC_TEAM_KEY"], file=sys.stderr)

def answer(arm, prompt):
    messages = [{{"role": "user", "content": prompt}}]
    body = dict(model=question["model"], messages=messages, max_tokens=24, temperature=0)
    request = urllib.request.Request(question[arm]["url"] + "/v1/chat/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]

pairs = []
for prompt in {list(PROMPTS)!r}:
    right = answer("stable", prompt)
    pairs.append({{"stable": {{"score": 1}}, "canary": {{"score": float(answer("canary", prompt) == right)}}}})
print(len(pairs), "questions")
print(json.dumps({{"pairs": pairs}}))
"""
"""A version has to answer as stable does."""


class Service:
    """Asks both arms one question, and says `running` to the first request of a delivery."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.secrets: set[str | None] = set()
        self.url = ""

    def answer(self, question: dict[str, Any]) -> Mapping[str, Any]:
        self.questions.append(question)
        if len(self.questions) == 1:
            return {"outcome": "running", "reason": "still asking"}
        stable, canary = (_asked(question, arm) for arm in ("stable", "canary"))
        same = sum(one == other for one, other in zip(stable, canary, strict=True))
        outcome = "pass" if same == len(PROMPTS) else "fail"
        return {"outcome": outcome, "reason": f"{same} answers are the same", "numbers": {"same": same}}


def _asked(question: Mapping[str, Any], arm: str) -> list[str]:
    answers = []
    for prompt in PROMPTS:
        messages = [{"role": "user", "content": prompt}]
        body = {"model": question["model"], "messages": messages, "max_tokens": 24, "temperature": 0}
        url = f"{question[arm]['url']}/v1/chat/completions"
        reply = httpx.post(url, json=body, timeout=120, trust_env=False).raise_for_status()
        answers.append(reply.json()["choices"][0]["message"]["content"])
    return answers


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("TIDEGATE_SPEC_TEAM_KEY", SECRET)
    monkeypatch.setenv("TIDEGATE_TRUST", "operator.yaml")
    asked = Service()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            asked.secrets.add(self.headers["Authorization"])
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(json.dumps(asked.answer(question)))

    with answering(Handler) as address:
        asked.url = f"http://{address}/judge?team=search"
        yield asked


def delivery(story: Story, service: Service, gates: list[str]) -> dict[str, Any]:
    """Nothing but what is asked outside stands between the version and users."""
    folder = story.machine.folder
    (folder / "check.py").write_text(CHECK, encoding="utf-8")
    trust = {"apiVersion": "tidegate/v1", "kind": "Trust", "spec": {"commands": [sys.executable]}}
    (folder / "operator.yaml").write_text(yaml.safe_dump(trust), encoding="utf-8")
    check = {"kind": "command", "run": [sys.executable, "check.py"], "files": ["check.py"], "max_drop": 0.1}
    (folder / "tasks").mkdir(exist_ok=True)
    shutil.copy(folder / "golden.jsonl", folder / "tasks/sums.jsonl")
    harness = {"kind": "eval", "task": "sums", "run": [sys.executable, harness_program.__file__], "api": "chat"}
    asked = {
        "harness": harness | {"arguments": ["--include_path", "tasks"], "files": ["tasks/sums.jsonl"], "max_drop": 0.1},
        "same-answers": check | {"variables": ["TIDEGATE_SPEC_TEAM_KEY"]},
        "webhook": {"url": service.url, "secret_env": "TIDEGATE_SPEC_TEAM_KEY", "poll": "1s", "timeout": "5m"},
    }
    return {"gates": asked, "stages": [{"offline": {"gates": gates}}]}


def nobody_was_told_the_secret(story: Story) -> None:
    files = [path for path in story.machine.state.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def kept(story: Story, gate: str) -> str:
    """What the newest delivery keeps of a gate's answers, in its folder and in the artifacts of its run alike."""
    newest = story.machine.deliveries.deliveries(MODEL)[0].id
    everywhere = story.machine.state.rglob(f"outside/offline@{REGION}.{gate}.txt")
    found = [path for path in everywhere if newest in path.parts]
    assert len(found) == 2, found
    (text,) = {path.read_text(encoding="utf-8") for path in found}
    return text


def runs_of_the_harness(story: Story) -> int:
    return len((story.machine.folder / "asked.txt").read_text(encoding="utf-8").splitlines())


def the_champion_has_been_asked_by_the_harness(
    story: Story, given: Given, when: When, then: Then, service: Service
) -> None:
    """By a delivery of before: that of the story above, or one for this alone."""
    if not (story.machine.folder / "asked.txt").exists():
        given.a_challenger_with_other_weights()
        when.a_delivery_runs(**delivery(story, service, ["harness"]))
        then.exits(1)


def test_a_version_that_answers_otherwise_is_stopped_by_a_command_a_service_or_a_harness(
    story: Story, given: Given, when: When, then: Then, service: Service
) -> None:
    given.a_fleet()
    given.a_challenger_with_other_weights()
    when.a_delivery_runs(**delivery(story, service, ["same-answers"]))
    then.exits(1)
    then.ledger_says("rolled-back", "gate same-answers: canary scores 0.00 against 1.00 of the champion on 16")
    then.region_serves(story.champion)
    assert "exit code 0" in kept(story, "same-answers") and "asked with ***" in kept(story, "same-answers")
    when.a_delivery_runs(**delivery(story, service, ["webhook"]))
    then.exits(1)
    then.ledger_says("rolled-back", "gate webhook: 0 answers are the same")
    then.region_serves(story.champion)
    assert [question["gate"] for question in service.questions] == ["webhook", "webhook"]
    assert service.secrets == {SECRET}
    when.a_delivery_runs(**delivery(story, service, ["harness"]))
    then.exits(1)
    then.ledger_says("rolled-back", "gate harness: canary scores 0.00 against 1.00 of the champion on 16 questions")
    then.region_serves(story.champion)
    assert "canary, version" in kept(story, "harness") and "|sums|exact_match|0.0000|" in kept(story, "harness")
    assert runs_of_the_harness(story) == 2
    nobody_was_told_the_secret(story)


def test_one_that_answers_alike_passes_all_and_is_delivered(
    story: Story, given: Given, when: When, then: Then, service: Service
) -> None:
    given.a_fleet()
    the_champion_has_been_asked_by_the_harness(story, given, when, then, service)
    before = runs_of_the_harness(story)
    given.a_healthy_challenger()
    when.a_delivery_runs(**delivery(story, service, ["same-answers", "webhook", "harness"]))
    then.exits(0)
    then.region_serves(story.challenger)
    question = service.questions[-1]
    assert (question["model"], question["region"], question["stage"]) == (MODEL, REGION, "offline")
    assert (question["stable"]["version"], question["canary"]["version"]) == (story.champion, story.challenger)
    assert "still asking" in kept(story, "webhook")
    assert "as it answered them before" in kept(story, "harness")
    assert runs_of_the_harness(story) == before + 1
    nobody_was_told_the_secret(story)
