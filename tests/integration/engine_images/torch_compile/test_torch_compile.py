"""A tiny model through the real torch.compile, each trial in a fresh process of the engine environment."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from alike import long

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.torch_runner import TorchProcesses, TorchRunner
from engine_images.build.builder import Builder, build_request
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest
from engine_images.build.torch_run import (
    BadModel,
    CompileOptions,
    NoRoom,
    OtherKey,
    RunFailed,
    TorchJob,
    TorchRun,
    TorchWorkload,
)
from engine_images.choices import TorchDevice
from engine_images.errors import NotProven
from engine_images.manifest import ModelContract
from engine_images.spec import EngineSettings
from tidegate.cli import main

MODELS = Path(__file__).with_name("tiny.py")
TINY = TorchWorkload(factory=f"{MODELS}:tiny", shapes=((4,),), device=TorchDevice.CPU, repeats=5)
OPTIONS = CompileOptions(fullgraph=True)
TOLERANCE = 1e-5

# Each process imports torch, and compiles; a busy machine needs minutes for it.
pytestmark = pytest.mark.timeout(900)


def quiet(line: str) -> None:
    """Nobody waits."""


def processes(folder: Path, *, timeout_seconds: float = 600) -> TorchProcesses:
    return TorchProcesses(find_engine_environment(), folder, timeout_seconds=timeout_seconds)


async def start_from(
    saved: Path, folder: Path, subject: TorchWorkload = TINY, options: CompileOptions = OPTIONS
) -> TorchRun:
    """One process that is handed the cache; eager outputs are not asked for, since it fails before."""
    return await processes(folder).run(TorchJob(subject=subject, options=options, load=saved / "default"), quiet)


@dataclass(frozen=True)
class Saved:
    folder: Path
    """As `--save` leaves it."""
    cold: TorchRun
    cached: TorchRun


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder, jobs = tmp_path_factory.mktemp("saved"), processes(tmp_path_factory.mktemp("work"))
    cache = folder / "default"

    async def compiled() -> Saved:
        await jobs.run(TorchJob(subject=TINY), quiet)
        cold = await jobs.run(TorchJob(subject=TINY, options=OPTIONS, save=cache), quiet)
        return Saved(folder, cold, await jobs.run(TorchJob(subject=TINY, options=OPTIONS, load=cache), quiet))

    return asyncio.run(compiled())


def test_a_second_process_finds_every_graph_and_builds_no_kernel(saved: Saved) -> None:
    cold, cached = saved.cold.counters, saved.cached.counters
    assert (cold.graph_hits, cold.graph_misses) == (0, 1)
    assert cold.kernels_built > 0
    assert (cached.graph_hits, cached.graph_misses) == (1, 0)
    assert (cached.autograd_hits, cached.autograd_misses) == (1, 0)
    assert cached.kernels_built == 0


def test_compiled_outputs_are_the_eager_ones(saved: Saved) -> None:
    for run in (saved.cold, saved.cached):
        assert run.agreement
        assert run.agreement.same_weights
        assert run.agreement.largest_difference < TOLERANCE
        assert 0 < run.agreement.largest_output <= 1


@pytest.mark.long
def test_the_old_spelling_starts_from_a_saved_cache(
    saved: Saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = shutil.copytree(saved.folder, tmp_path / "moved")
    asked = [TINY.factory, "--shape", "4", "--fullgraph", "--device", "cpu", "--repeats", "5", "--output", "json"]
    assert main(["engine", "torch", *asked, "--load", str(moved)]) == 0
    record = json.loads(capsys.readouterr().out)["default"]["record"]
    assert record["built"]["log"]["loaded"]
    assert record["cold"] is None
    assert record["agreement"]["largest_difference"] < TOLERANCE


@pytest.mark.long
def test_the_old_spelling_saves_what_it_has_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [TINY.factory, "--shape", "4", "--device", "cpu", "--repeats", "5", "--save", str(tmp_path / "caches")]
    assert main(["engine", "torch", *asked]) == 0
    assert "4: " in capsys.readouterr().out
    assert (tmp_path / "caches" / "default" / "key.json").is_file()


async def test_a_changed_option_and_shape_are_named(saved: Saved, tmp_path: Path) -> None:
    changed = TINY.model_copy(update={"shapes": ((8,),)})
    with pytest.raises(OtherKey) as caught:
        await start_from(saved.folder, tmp_path, changed, OPTIONS.model_copy(update={"fullgraph": False}))
    assert "option:fullgraph: built with True, here False; shapes: built with 4, here 8" in str(caught.value)


@pytest.mark.long
async def test_changed_threads_and_compiler_variables_are_named(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    if saved.cached.factors["threads"] == "1":
        pytest.skip("this machine has one core")
    with pytest.raises(OtherKey, match=r"env:TORCHINDUCTOR_FREEZING: built with nothing, here 1; threads: built with"):
        await start_from(saved.folder, tmp_path)


@pytest.mark.long
async def test_changed_code_of_the_model_is_named(saved: Saved, tmp_path: Path) -> None:
    changed = tmp_path / "tiny.py"
    changed.write_text(MODELS.read_text(encoding="utf-8").replace("gelu", "relu"), encoding="utf-8")
    with pytest.raises(OtherKey, match=r"model_code: built with [0-9a-f]{64}, here [0-9a-f]{64};") as caught:
        await start_from(saved.folder, tmp_path, TINY.model_copy(update={"factory": f"{changed}:tiny"}))
    assert "model_structure" not in str(caught.value)


async def test_a_changed_file_of_the_cache_is_named_before_torch_reads_it(saved: Saved, tmp_path: Path) -> None:
    caches = shutil.copytree(saved.folder, tmp_path / "caches")
    artifacts = caches / "default" / "artifacts.bin"
    artifacts.write_bytes(artifacts.read_bytes()[:-1] + b"!")
    with pytest.raises(OtherKey, match=r"artifacts.bin is not the file that was saved"):
        await start_from(caches, tmp_path)


async def test_a_folder_without_a_cache_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(OtherKey, match="holds no saved cache"):
        await start_from(tmp_path, tmp_path)


def test_a_saved_cache_says_what_it_is_for(saved: Saved) -> None:
    key = json.loads((saved.folder / "default" / "key.json").read_text(encoding="utf-8"))
    assert {"torch", "python", "cpu", "compiler", "threads", "model_code", "option:mode"} <= key["factors"].keys()
    assert "artifacts.bin" in key["files"]


@pytest.mark.parametrize(
    ("factory", "shapes", "error", "said"),
    [
        ("forgot", (), BadModel, "the factory returned a Tiny; expected a torch.nn.Module and its inputs"),
        long("nothing", (), BadModel, "has no function nothing; it has breaks, forgot, scaled, tiny, too_big"),
        long("tiny", (), BadModel, "inputs for a shape: say which"),
        long("tiny", ((4, 4),), BadModel, "no inputs of shape 4x4: TypeError"),
        ("too_big", ((4,),), NoRoom, "out of memory"),
    ],
)
async def test_what_cannot_be_tried_is_one_line(
    tmp_path: Path, factory: str, shapes: tuple[tuple[int, ...], ...], error: type[Exception], said: str
) -> None:
    subject = TorchWorkload(factory=f"{MODELS}:{factory}", shapes=shapes, device=TorchDevice.CPU)
    with pytest.raises(error) as caught:
        await processes(tmp_path).run(TorchJob(subject=subject), quiet)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.long
async def test_a_build_of_a_module_is_proven_found_again_and_held_to_its_floor(tmp_path: Path) -> None:
    """The module's weights are files of the model version, which its factory gets."""
    (tmp_path / "version").mkdir()
    (tmp_path / "version" / "scale.json").write_text("0.5", encoding="utf-8")
    environment = find_engine_environment()

    def asked(floor: float | None) -> BuildRequest:
        module = {"factory": f"{MODELS.name}:scaled", "shapes": ["4"], "device": "cpu", "repeats": 20}
        settings = EngineSettings.model_validate({"torch": module, "compile": {"floor": floor, "tolerance": TOLERANCE}})
        contract = ModelContract(name="tiny", version="1", digest="d" * 64, files={})
        folder = tmp_path / "version"
        return build_request(contract, folder, settings, environment, name="tiny", spec_folder=MODELS.parent)

    builder = Builder(EngineStore(tmp_path / "store"), TorchRunner(environment))
    built = await builder.build(asked(None), quiet)
    assert built.record.built
    assert built.record.agreement
    assert built.record.agreement.largest < TOLERANCE
    assert [timing.name for timing in built.record.built.timings] == ["4"]
    assert built.record.built.breaks == ()
    manifest = json.loads((built.root / "manifest.json").read_bytes())
    assert "artifacts.bin" in manifest["cache"]
    assert {"torch", "cpu", "model_code", "option:mode"} <= manifest["key"]["factors"].keys()
    assert (await builder.build(asked(0.001), quiet)).found
    with pytest.raises(NotProven, match=r"4: compiled is .* times as fast as eager; at least 1000 is asked for"):
        await builder.build(asked(1000), quiet)


@pytest.mark.long
async def test_a_graph_break_is_named_with_its_place(tmp_path: Path) -> None:
    subject = TorchWorkload(factory=f"{MODELS}:breaks", device=TorchDevice.CPU, repeats=1)
    run = await processes(tmp_path).run(TorchJob(subject=subject, options=CompileOptions()), quiet)
    (broken,) = run.breaks
    assert broken.startswith("generic_jump")
    assert "tiny.py:21 in forward" in broken


@pytest.mark.long
async def test_a_graph_break_under_fullgraph_is_told_with_its_place(tmp_path: Path) -> None:
    subject = TorchWorkload(factory=f"{MODELS}:breaks", device=TorchDevice.CPU, repeats=1)
    with pytest.raises(BadModel, match=r"torch breaks the graph: .*data-dependent.*tiny.py:\d+ in forward"):
        await processes(tmp_path).run(TorchJob(subject=subject, options=OPTIONS), quiet)


async def test_a_trial_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="not over after"):
        await processes(tmp_path, timeout_seconds=0.2).run(TorchJob(subject=TINY), quiet)
