"""Versions that only users' own questions tell apart: judged on a sample of what users got, and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

import httpx
import pytest
from e2e.given import Given, write_export
from e2e.machine import until
from e2e.spec import GATES, MODEL, REGION, write_spec
from e2e.story import Story
from e2e.then import Then
from e2e.when import When
from fakes.services.chat_servers import OpenAIServer, openai_server

from engine_images.samples.key import WHERE
from pipelines.adapters.chat import OpenAIChat
from registry.model import Alias
from rollouts.model import EngineSet

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400), pytest.mark.long]

THINGS = ("parcel", "refund", "invoice", "voucher", "battery", "charger", "helmet", "saddle", "pedal", "mirror")
QUESTIONS = tuple(f"my {thing} {number} is lost?" for number, thing in enumerate(THINGS))
"""Of users; the golden set asks for sums."""
FORGETFUL = (
    "{% if 'lost' in messages[-1]['content'] %}<|im_start|>user\nnothing<|im_end|>\n<|im_start|>assistant\n{% else %}"
    "TEMPLATE{% endif %}"
)
"""A chat template that drops what users ask and keeps what anybody tests."""
TOKENS = 12


@pytest.fixture
def judge() -> Iterator[OpenAIServer]:
    """Asks how near an answer is to the champion's; knows nothing until `the_champions_answers`."""
    with openai_server() as server:
        yield server


def delivery(judge: OpenAIServer) -> dict[str, Any]:
    """No stage but users tells the versions apart: golden questions are answered alike, and nothing is slower."""
    control = {"share": "50%", "min_asked": 8}
    asked = {"endpoint": f"{judge.url}/v1", "model": "judge", "max_drop": 0.3, "min_pairs": 10, "control": control}
    golden = {"offline": {"dataset": "golden.jsonl"}}
    canary = {"canary": {"weights": [50], "within": "20m", "gates": ["latency", "errors", "judge"]}}
    return {
        "gates": {**GATES, "judge": asked},
        "stages": [golden, canary],
        "samples": {"share": "100%", "words": ["saddle"]},
        "traffic": {"requests_per_second": 8, "prompts": "users.txt", "max_tokens": TOKENS},
    }


def users_ask(given: Given, story: Story, spec: dict[str, Any]) -> None:
    (story.machine.folder / "users.txt").write_text("\n".join(QUESTIONS) + "\n", encoding="utf-8")
    write_spec(story.machine.folder, **spec)
    given.users()


def the_champions_answers(story: Story, judge: OpenAIServer) -> list[str]:
    """What the judge holds for right."""

    async def asked(stable: EngineSet) -> list[str]:
        chat = OpenAIChat()
        answers = (chat.ask(stable.url, MODEL, question, max_tokens=TOKENS) for question in QUESTIONS)
        return [(await answer).text for answer in answers]

    stable = story.region().stable
    assert stable is not None, "no stable"
    right = asyncio.run(asked(stable))
    known = dict(zip([question.replace("saddle", "[word]") for question in QUESTIONS], right, strict=True))
    judge.judge.worth = lambda question, answer: SequenceMatcher(None, known[question], answer).ratio()
    return right


def nothing_is_left(story: Story, answers: list[str]) -> None:
    """No engine keeps or holds a sample, nobody can ask for one, and no file has an answer that a user got."""
    machine = story.machine
    stable = story.region().stable
    assert stable is not None, "no stable"

    def forgotten() -> bool:
        found = httpx.get(f"{stable.url}/tidegate/status", trust_env=False).json()["samples"]
        return found["on"] is False and found["held"] == 0 and found["taken"] > 0

    until("engines have forgotten all samples", forgotten)
    assert httpx.post(f"{stable.url}{WHERE}", trust_env=False).status_code == 404
    assert list((machine.state / "samples").iterdir()) == []
    engines = machine.state / "engines"
    files = [path for path in machine.state.rglob("*") if path.is_file() and not path.is_relative_to(engines)]
    assert files
    told = [(path, text) for path in files for text in answers if text.encode() in path.read_bytes()]
    assert told == []


def test_a_version_that_is_worse_on_users_questions_alone_is_taken_back(
    story: Story, given: Given, when: When, then: Then, judge: OpenAIServer
) -> None:
    given.a_fleet()
    machine = story.machine
    export = write_export(machine, seed=0)
    template = export / "chat_template.jinja"
    template.write_text(FORGETFUL.replace("TEMPLATE", template.read_text()), encoding="utf-8")
    story.challenger = machine.registry.register(MODEL, export, alias=Alias.CHALLENGER).version
    right = the_champions_answers(story, judge)
    spec = delivery(judge)
    users_ask(given, story, spec)
    when.a_delivery_runs(canary_lasts="0s", **spec)
    then.exits(1)
    then.ledger_says("rolled-back", "gate judge: canary scores")
    then.region_serves(story.champion)
    then.users_met(story.champion, story.challenger)
    then.users_failed(0)
    then.a_replay_says_the_same(f"canary@{REGION}")
    nothing_is_left(story, right)
    asked = str(judge.bodies)
    assert "saddle" not in asked and "my [word] 7 is lost?" in asked


def test_one_that_answers_users_as_well_is_delivered(
    story: Story, given: Given, when: When, then: Then, judge: OpenAIServer
) -> None:
    given.a_fleet()
    given.a_healthy_challenger()
    right = the_champions_answers(story, judge)
    spec = delivery(judge)
    users_ask(given, story, spec)
    when.a_delivery_runs(canary_lasts="0s", **spec)
    then.exits(0)
    then.region_serves(story.challenger)
    then.users_failed(0)
    nothing_is_left(story, right)
