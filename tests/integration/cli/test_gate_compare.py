"""`gate compare` against two endpoints on the loopback, as a person and a CI job type it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fakes.services.chat_servers import an_answer, endpoint_server, openai_server
from fakes.terminal import Tidegate

PROMPTS = 40


def right(prompt: str) -> str:
    return f"it is {len(prompt)} of {prompt.rpartition(' ')[2]}"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.jsonl"
    prompts = [f"how long is {'x' * number}" for number in range(1, PROMPTS + 1)]
    path.write_text("".join(json.dumps({"prompt": each, "expected": right(each)}) + "\n" for each in prompts))
    return path


def test_an_equal_endpoint_passes(tidegate: Tidegate, golden: Path, tmp_path: Path) -> None:
    gates = tmp_path / "gates.yaml"
    gates.write_text("apiVersion: tidegate/v1\nkind: Gates\ngates: {errors: {max_increase: 5pp}}\n")
    with endpoint_server(right) as stable, endpoint_server(right) as canary:
        ends = ["--stable", stable.url, "--canary", canary.url]
        # Times of a loopback are no more than noise, so they are not asked.
        said = tidegate("gate", "compare", golden, "--gates", gates, "-o", "json", *ends)
    assert said.code == 0, said.err
    assert said.json["outcome"] == "pass"
    assert [verdict["gate"] for verdict in said.json["verdicts"]] == ["quality", "errors"]


def test_a_worse_endpoint_fails_and_ci_sees_why(
    tidegate: Tidegate, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with endpoint_server(right) as stable, endpoint_server(lambda _: "no idea") as canary:
        ends = ["--stable", stable.url, "--canary", canary.url]
        said = tidegate("gate", "compare", golden, *ends, "--ci")
        assert len(stable.bodies) < PROMPTS, "it ends with the first verdict"
    assert said.code == 1
    assert "golden: fail after" in said.out and "pairs of answers" in said.out
    case = ElementTree.parse("tidegate-junit.xml").find(".//testcase[@name='quality']/failure")
    assert case is not None and "worse than allowed whatever" in str(case.get("message"))


JUDGED = """apiVersion: tidegate/v1
kind: Delivery
metadata: {{name: d}}
model: {{name: m}}
engine: {{vllm: {{version: 0.32.0}}, accelerator: cpu}}
gates:
  errors: {{max_increase: 50pp}}
  judge: {{endpoint: "{url}/v1", model: big, sample: 100%, control: {{share: 100%, min_asked: 5}}}}
stages: [{{canary: {{weights: [50], gates: [errors]}}}}]
regions: {{waves: [[here]]}}
"""


def test_a_judge_of_the_delivery_is_asked_about_both_answers(tidegate: Tidegate, tmp_path: Path) -> None:
    golden, spec = tmp_path / "golden.jsonl", tmp_path / "delivery.yaml"
    words = [f"number{at}" for at in range(PROMPTS)]
    golden.write_text("".join(json.dumps({"prompt": f"what is {one}?", "expected": one}) + "\n" for one in words))

    def worth(score: float, prompt: str) -> str:
        return an_answer(score, prompt.removeprefix("what is ").removesuffix("?"))

    with (
        openai_server() as judge,
        endpoint_server(lambda prompt: worth(0.8, prompt)) as stable,
        endpoint_server(lambda prompt: worth(0.3, prompt)) as canary,
    ):
        spec.write_text(JUDGED.format(url=judge.url))
        ends = ["--stable", stable.url, "--canary", canary.url]
        said = tidegate("gate", "compare", golden, "--gates", spec, "-o", "json", *ends)
    outcomes = {verdict["gate"]: verdict["outcome"] for verdict in said.json["verdicts"]}
    assert (said.code, outcomes["judge"]) == (1, "fail"), said.err


def test_keys_come_from_where_the_options_say_and_are_nowhere_else(
    tidegate: Tidegate, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STABLE_KEY", "sk-of-stable")
    file = tmp_path / "key"
    file.write_text("sk-of-canary\n")
    with endpoint_server(right, key="sk-of-stable") as stable, endpoint_server(right, key="sk-of-canary") as canary:
        ends = [golden, "--stable", stable.url, "--canary", canary.url]
        keys = ["--stable-key", "STABLE_KEY", "--canary-key", f"@{file}"]
        said = tidegate("gate", "compare", *ends, *keys, "--within", "20s")
        without = tidegate("gate", "compare", *ends)
        missing = tidegate("gate", "compare", *ends, "--stable-key", "NOT_SET")
    assert "pairs of answers" in said.out
    assert "sk-of" not in said.out + said.err + without.err
    assert (without.code, missing.code) == (4, 2)
    assert "/v1 answers 401" in without.err and "name the model with --stable-model" in without.err
    assert "--stable-key: no key is there" in missing.err


def test_what_is_wrong_is_told_before_anybody_is_asked(tidegate: Tidegate, golden: Path, tmp_path: Path) -> None:
    with endpoint_server(models=("a", "b")) as server:
        several = tidegate("gate", "compare", golden, "--stable", server.url, "--canary", server.url)
        assert server.bodies == []
    assert several.code == 2
    assert "serves 2 models: a, b; name one: --stable-model" in several.err
    with endpoint_server(right) as stable, endpoint_server(lambda _: None) as canary:
        mute = tidegate("gate", "compare", golden, "--stable", stable.url, "--canary", canary.url)
    assert (mute.code, len(canary.bodies)) == (4, 3)
    away = tidegate("gate", "compare", golden, "--stable", "http://127.0.0.1:9", "--canary", "http://127.0.0.1:9")
    assert (away.code, "does not answer" in away.err) == (4, True)
