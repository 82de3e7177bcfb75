"""A tiny model through the real torch.compile, each trial in a fresh process of the engine environment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.torch_processes import TorchProcesses
from engine_images.torch_compile.choices import Device, Mode
from engine_images.torch_compile.errors import BadModel, NoRoom, OtherKey, TrialFailed
from engine_images.torch_compile.model import Job, Options, Run, Subject, Trial
from engine_images.torch_compile.trial import try_compiled, try_saved

MODELS = Path(__file__).with_name("tiny.py")
TINY = Subject(factory=f"{MODELS}:tiny", shapes=((4,),), device=Device.CPU, repeats=5)
OPTIONS = Options(mode=Mode.DEFAULT, fullgraph=True)
TOLERANCE = 1e-5


def quiet(line: str) -> None:
    """Nobody waits."""


def processes(folder: Path, *, timeout_seconds: float = 120) -> TorchProcesses:
    return TorchProcesses(find_engine_environment(), folder, timeout_seconds=timeout_seconds)


def start_from(saved: Path, folder: Path, subject: Subject = TINY, options: Options = OPTIONS) -> Run:
    """One process that is handed the cache; eager outputs are not asked for, since it fails before."""
    return processes(folder).run(Job(subject=subject, options=options, load=saved / "default"), quiet)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trial]:
    folder, workdir = tmp_path_factory.mktemp("saved"), tmp_path_factory.mktemp("work")
    trial = try_compiled(
        processes(workdir), TINY, [OPTIONS], save=folder / "caches", tolerance=TOLERANCE, progress=quiet
    )
    return folder / "caches", trial


@pytest.mark.timeout(180)
def test_a_second_process_finds_every_graph_and_builds_no_kernel(saved: tuple[Path, Trial]) -> None:
    (compiled,) = saved[1].compiled
    assert compiled.cold is not None
    assert (compiled.cold.counters.graph_hits, compiled.cold.counters.graph_misses) == (0, 1)
    assert compiled.cold.counters.kernels_built > 0
    assert (compiled.cached.counters.graph_hits, compiled.cached.counters.graph_misses) == (1, 0)
    assert (compiled.cached.counters.autograd_hits, compiled.cached.counters.autograd_misses) == (1, 0)
    assert compiled.cached.counters.kernels_built == 0
    assert compiled.cached.seconds["warm_up"] < compiled.cold.seconds["warm_up"]


def test_compiled_outputs_are_the_eager_ones(saved: tuple[Path, Trial]) -> None:
    (compiled,) = saved[1].compiled
    assert compiled.cold is not None
    for run in (compiled.cold, compiled.cached):
        assert run.agreement.same_weights
        assert run.agreement.largest_difference < TOLERANCE
    assert 0 < compiled.cached.agreement.largest_output <= 1


def test_a_cache_is_used_again_from_another_folder(saved: tuple[Path, Trial], tmp_path: Path) -> None:
    moved = shutil.copytree(saved[0], tmp_path / "moved")
    trial = try_saved(processes(tmp_path), TINY, [OPTIONS], load=moved, tolerance=TOLERANCE, progress=quiet)
    assert trial.compiled[0].cached.counters.graph_hits == 1


def test_a_changed_option_and_shape_are_named(saved: tuple[Path, Trial], tmp_path: Path) -> None:
    changed = TINY.model_copy(update={"shapes": ((8,),)})
    with pytest.raises(OtherKey) as caught:
        start_from(saved[0], tmp_path, changed, OPTIONS.model_copy(update={"fullgraph": False}))
    assert "option:fullgraph: saved with True, here False; shapes: saved with 4, here 8" in str(caught.value)


def test_changed_threads_and_compiler_variables_are_named(
    saved: tuple[Path, Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    if saved[1].eager.factors["threads"] == "1":
        pytest.skip("this machine has one core")
    with pytest.raises(OtherKey, match=r"env:TORCHINDUCTOR_FREEZING: saved with nothing, here 1; threads: saved with"):
        start_from(saved[0], tmp_path)


def test_changed_code_of_the_model_is_named(saved: tuple[Path, Trial], tmp_path: Path) -> None:
    changed = tmp_path / "tiny.py"
    changed.write_text(MODELS.read_text(encoding="utf-8").replace("gelu", "relu"), encoding="utf-8")
    with pytest.raises(OtherKey, match=r"model_code: saved with [0-9a-f]{64}, here [0-9a-f]{64};") as caught:
        start_from(saved[0], tmp_path, TINY.model_copy(update={"factory": f"{changed}:tiny"}))
    assert "model_structure" not in str(caught.value)


def test_a_changed_file_of_the_cache_is_named_before_torch_reads_it(saved: tuple[Path, Trial], tmp_path: Path) -> None:
    caches = shutil.copytree(saved[0], tmp_path / "caches")
    artifacts = caches / "default" / "artifacts.bin"
    artifacts.write_bytes(artifacts.read_bytes()[:-1] + b"!")
    with pytest.raises(OtherKey, match=r"artifacts.bin is not the file that was saved"):
        start_from(caches, tmp_path)


def test_a_folder_without_a_cache_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(OtherKey, match="holds no saved cache"):
        start_from(tmp_path, tmp_path)


def test_a_saved_cache_says_what_it_is_for(saved: tuple[Path, Trial]) -> None:
    key = json.loads((saved[0] / "default" / "key.json").read_text(encoding="utf-8"))
    assert {"torch", "python", "cpu", "compiler", "threads", "model_code", "option:mode"} <= key["factors"].keys()
    assert "artifacts.bin" in key["files"]


@pytest.mark.parametrize(
    ("factory", "shapes", "error", "said"),
    [
        ("forgot", (), BadModel, "the factory returned a Tiny; expected a torch.nn.Module and its inputs"),
        ("nothing", (), BadModel, "has no function nothing; it has breaks, forgot, tiny, too_big"),
        ("tiny", (), BadModel, "say which with --shape"),
        ("tiny", ((4, 4),), BadModel, "no inputs of shape 4x4: TypeError"),
        ("too_big", ((4,),), NoRoom, "out of memory"),
    ],
)
def test_what_cannot_be_tried_is_one_line(
    tmp_path: Path, factory: str, shapes: tuple[tuple[int, ...], ...], error: type[Exception], said: str
) -> None:
    subject = Subject(factory=f"{MODELS}:{factory}", shapes=shapes, device=Device.CPU)
    with pytest.raises(error) as caught:
        processes(tmp_path).run(Job(subject=subject), quiet)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_graph_break_under_fullgraph_is_told_with_its_place(tmp_path: Path) -> None:
    subject = Subject(factory=f"{MODELS}:breaks", device=Device.CPU, repeats=1)
    with pytest.raises(BadModel, match=r"torch breaks the graph: .*data-dependent.*tiny.py:\d+ in forward"):
        processes(tmp_path).run(Job(subject=subject, options=OPTIONS), quiet)


def test_a_trial_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TrialFailed, match="not over after"):
        processes(tmp_path, timeout_seconds=0.2).run(Job(subject=TINY), quiet)
