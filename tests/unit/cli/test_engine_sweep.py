"""`tidegate engine sweep`: what it refuses before anything is built, and which engine each value means."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engine_images.spec import EngineSettings
from pipelines.load.model import LoadShape
from pipelines.load.requests import plain_requests
from pipelines.load.sweep import LatencyBudget
from pipelines.run.sweep import SweepPlan
from pipelines.spec.evidence.load import LoadSettings
from registry.model import ModelVersion
from tidegate.app.engines.sweep import SweepOptions, load_of, measured_as, with_size
from tidegate.cli import main
from tidegate.cli.groups.engine import SweepShape
from tidegate.core.errors import ExitCode, UsageError

pytestmark = pytest.mark.long

SPEC = """
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: tiny}
model: {name: tiny}
engine: {vllm: {version: 0.32.0}}
gates: {latency: {}, errors: {}}
stages:
  - canary: {weights: [50], gates: [latency, errors]}
regions: {waves: [[here]]}
fleet: {kind: local}
traffic: {prompts: prompts.txt, requests_per_second: 5}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("How are you?\n")
    path = tmp_path / "delivery.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "no latency budget; give --ttft-p95, --itl-p95, or both"),
        (["--itl-p95", "1s", "--from", "8", "--to", "4"], "--to 4 is less than --from 8; exchange them"),
        (["--itl-p95", "1s", "--block", "1s"], "--block: found 1s; expected 5s or more"),
        (["--itl-p95", "1s", "--prompts", "none.txt"], "none.txt: found no such file; expected one prompt a line"),
        (["--itl-p95", "1s", "--lengths", "none.txt"], "none.txt: No such file or directory"),
        (["--itl-p95", "1s", "--lengths", "prompts.txt"], "the lengths are not metrics as an engine tells them"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_built(
    spec: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["engine", "sweep", "models:/tiny/1", *options]) == ExitCode.USAGE
    told = capsys.readouterr()
    assert (said in told.err, told.out) == (True, ""), told.err
    assert not (spec.parent / ".tidegate" / "builds").exists()


def test_a_fleet_of_clusters_is_refused(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = "context: c, entry: 'http://e', stable_url: 'http://s', canary_url: 'http://c', prometheus: 'http://p'"
    fleet = f"{{kind: argo, namespace: n, gateway: {{name: g}}, regions: {{here: {{{place}}}}}}}"
    spec.write_text(SPEC.replace("{kind: local}", fleet))
    assert main(["engine", "sweep", "models:/tiny/1", "--itl-p95", "1s"]) == ExitCode.USAGE
    assert "on clusters, not on this machine" in capsys.readouterr().err


def test_the_shapes_of_the_option_are_those_of_loads() -> None:
    assert [str(shape) for shape in SweepShape] == [str(shape) for shape in LoadShape]


def settings(**args: object) -> EngineSettings:
    asked = {"vllm": {"version": "0.32.0", "args": args}, "compile": {"warm": [1, 8, 32]}}
    return EngineSettings.model_validate(asked)


def test_an_engine_is_warmed_up_by_batches_that_it_has() -> None:
    sized = with_size(settings(**{"max-model-len": 256}), 8)
    assert sized.vllm is not None
    assert sized.vllm.args == {"max-model-len": 256, "max-num-seqs": 8}
    assert (sized.compile.warm, with_size(settings(), 4).compile.warm) == ((1, 8), (1,))


def test_arguments_that_do_not_allow_a_value_are_told_with_it() -> None:
    odd = settings().model_copy(update={"accelerator_count": 2})
    with pytest.raises(UsageError, match=r"max-num-seqs 8: engine\.accelerator_count: found 2 of cpu"):
        with_size(odd, 8)


OPTIONS = SweepOptions(
    model="models:/tiny/1",
    spec=Path("delivery.yaml"),
    state=Path(".tidegate"),
    tracking_uri=None,
    budget=LatencyBudget(itl_p95=0.05),
    lowest=1,
    highest=64,
    blocks=6,
    block=None,
    shape=None,
    prompts=None,
    lengths=None,
    max_tokens=None,
)


def test_the_load_is_that_of_the_specs_stage_but_for_what_a_person_says() -> None:
    of_spec = LoadSettings(max_tokens=64, shape=LoadShape.SPIKE, prompts=Path("prompts.txt"))
    assert load_of(of_spec, OPTIONS) == of_spec
    said = load_of(of_spec, replace(OPTIONS, shape=LoadShape.STEADY, block=timedelta(seconds=9), prompts=Path("p")))
    assert (said.shape, said.block.total_seconds(), said.max_tokens) == (LoadShape.STEADY, 9.0, 64)
    assert said.prompts == Path("p").absolute()


def test_measurements_are_of_a_version_an_engine_and_a_load_whatever_the_budget() -> None:
    version = ModelVersion(name="tiny", version="1", digest="a" * 64, files={}, size_bytes=1)
    plan = SweepPlan(
        version=version.uri,
        model="tiny",
        requests=plain_requests(["a"], 8),
        budget=OPTIONS.budget,
        lowest=1,
        highest=64,
        blocks=6,
        seconds=20,
        shape=LoadShape.STEADY,
    )
    same = measured_as(plan, settings(), version)
    assert measured_as(replace(plan, budget=LatencyBudget(ttft_p95=1), blocks=9), settings(), version) == same
    assert measured_as(plan, settings(**{"max-num-seqs": 3}), version) == same
    others = {
        measured_as(replace(plan, seconds=30), settings(), version),
        measured_as(replace(plan, requests=plain_requests(["b"], 8)), settings(), version),
        measured_as(plan, settings(**{"max-model-len": 128}), version),
        measured_as(plan, settings(), version.model_copy(update={"digest": "b" * 64})),
    }
    assert len(others | {same}) == 5
