"""A gate of kind `command` that asks both engines."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml
from e2e.given import Given
from e2e.spec import MODEL, PROMPTS, REGION
from e2e.story import Story
from e2e.then import Then
from e2e.when import When

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


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_SPEC_TEAM_KEY", SECRET)
    monkeypatch.setenv("TIDEGATE_TRUST", "operator.yaml")


def delivery(story: Story) -> dict[str, Any]:
    """Nothing but the command stands between the version and users."""
    folder = story.machine.folder
    (folder / "check.py").write_text(CHECK, encoding="utf-8")
    trust = {"apiVersion": "tidegate/v1", "kind": "Trust", "spec": {"commands": [sys.executable]}}
    (folder / "operator.yaml").write_text(yaml.safe_dump(trust), encoding="utf-8")
    check = {"kind": "command", "run": [sys.executable, "check.py"], "files": ["check.py"], "max_drop": 0.1}
    gates = {"same-answers": check | {"variables": ["TIDEGATE_SPEC_TEAM_KEY"]}}
    return {"gates": gates, "stages": [{"offline": {"gates": ["same-answers"]}}]}


def nobody_was_told_the_secret(story: Story) -> None:
    files = [path for path in story.machine.state.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def kept(story: Story) -> str:
    """What the newest delivery keeps of the gate's answers, in its folder and in the artifacts of its run alike."""
    newest = story.machine.deliveries.deliveries(MODEL)[0].id
    everywhere = story.machine.state.rglob(f"commands/offline@{REGION}.same-answers.txt")
    found = [path for path in everywhere if newest in path.parts]
    assert len(found) == 2, found
    (text,) = {path.read_text(encoding="utf-8") for path in found}
    return text


def test_a_version_that_answers_otherwise_is_stopped_and_one_that_answers_alike_is_delivered(
    story: Story, given: Given, when: When, then: Then
) -> None:
    given.a_fleet()
    given.a_challenger_with_other_weights()
    when.a_delivery_runs(**delivery(story))
    then.exits(1)
    then.ledger_says("rolled-back", "gate same-answers: canary scores 0.00 against 1.00 of the champion on 16")
    then.region_serves(story.champion)
    assert "exit code 0" in kept(story) and "asked with ***" in kept(story)
    given.a_healthy_challenger()
    when.a_delivery_runs(**delivery(story))
    then.exits(0)
    then.region_serves(story.challenger)
    nobody_was_told_the_secret(story)
