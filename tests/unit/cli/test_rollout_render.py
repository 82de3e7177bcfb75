"""`tidegate rollout render`: what it prints, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fakes.fleet import IMAGE

from tidegate.cli import main

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples/kubernetes/delivery.yaml")
LOCAL = str(ROOT / "examples/demo/delivery.yaml")
ENGINE = ("--version", "7", "--image", IMAGE)


def render(*arguments: str, spec: str = EXAMPLE) -> int:
    return main(["rollout", "render", spec, *ENGINE, *arguments])


def test_yaml_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--region", "eu-west-1") == 0
    text = capsys.readouterr().out
    assert render("--region", "eu-west-1", "--output", "json") == 0
    assert list(yaml.safe_load_all(text)) == json.loads(capsys.readouterr().out)


def test_an_administrator_gets_what_a_delivery_may_not_do_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--region", "eu-west-1", "--part", "setup") == 0
    kinds = {each["kind"] for each in yaml.safe_load_all(capsys.readouterr().out)}
    assert {"Role", "ClusterRole", "PriorityClass", "NodePool", "NetworkPolicy"} <= kinds
    assert "Rollout" not in kinds


def test_what_an_administrator_applies_is_the_same_for_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("--region", "eu-west-1", "--part", "setup")
    assert main(["rollout", "render", EXAMPLE, *wanted]) == 0
    printed = capsys.readouterr().out
    assert render(*wanted) == 0
    assert capsys.readouterr().out == printed


def test_parts_may_be_several(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for parts in (("setup",), ("serving",), ("serving", "setup")):
        assert render("--region", "eu-west-1", *(word for part in parts for word in ("--part", part))) == 0
        printed.append(list(yaml.safe_load_all(capsys.readouterr().out)))
    setup, serving, both = printed
    assert both == [*setup, *serving]


def test_the_engine_is_the_one_that_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert render("--region", "eu-west-1", "--part", "serving", "--digest", "abc", "--output", "json") == 0
    template = json.loads(capsys.readouterr().out)[-1]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == IMAGE
    assert template["metadata"]["labels"]["tidegate.dev/version"] == "7"
    assert template["metadata"]["annotations"] == {"tidegate.dev/digest": "abc"}


def test_a_promise_that_nothing_watches_is_told_next_to_the_objects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "delivery.yaml"
    promise = "{name: first-token, objective: 99, ttft: {below: 500ms}}"
    written = Path(EXAMPLE).read_text().replace(promise, "{name: kv, objective: 50, kv_cache: {below: 90%}}")
    spec.write_text(written)
    assert render("--region", "eu-west-1", spec=str(spec)) == 0
    out, err = capsys.readouterr()
    assert err.startswith("not watched in the cluster: ")
    assert yaml.safe_load_all(out)


@pytest.mark.parametrize(
    ("arguments", "spec", "line"),
    [
        ((), EXAMPLE, "--region: found no region; expected one of eu-west-1, us-east-1, ap-south-1"),
        (("--region", "mars"), EXAMPLE, "--region: found region 'mars'; expected one of eu-west-1, us-east-1"),
        (
            ("--region", "eu-west-1", "--version", "v7"),
            EXAMPLE,
            "--version: found 'v7'; expected the number of a model version",
        ),
        (
            ("--region", "eu-west-1", "--image", "engine:7"),
            EXAMPLE,
            "--image: found 'engine:7'; expected REPOSITORY@sha256:DIGEST",
        ),
        ((), LOCAL, "the fleet of this delivery is no cluster; set `fleet.kind: argo`"),
        (("--as", "workflow"), EXAMPLE, "--version: only with --as objects; leave it out"),
    ],
)
def test_what_cannot_be_rendered_is_refused(
    arguments: tuple[str, ...], spec: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render(*arguments, spec=spec) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err


def test_an_option_that_is_not_there_is_called_none(capsys: pytest.CaptureFixture[str]) -> None:
    said = "--image: found none; expected REPOSITORY@sha256:DIGEST, as `engine push` prints it; `--part setup` of"
    assert main(["rollout", "render", EXAMPLE, "--region", "eu-west-1"]) == 2
    assert said in capsys.readouterr().err
    assert main(["rollout", "render", EXAMPLE, "--region", "eu-west-1", "--image", IMAGE]) == 2
    assert "--version: found none; expected the number of a model version" in capsys.readouterr().err
