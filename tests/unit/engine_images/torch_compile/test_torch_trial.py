from pathlib import Path

import pytest
from fakes.torch_runs import DEFAULT, SUBJECT, ScriptedProcesses, counters, run

from engine_images.errors import NotProven
from engine_images.torch_compile.trial import try_compiled, try_saved
from tidegate.core.errors import UsageError


def quiet(line: str) -> None:
    """Nobody waits."""


def test_the_cache_is_used_by_another_process_before_it_is_kept(tmp_path: Path) -> None:
    processes = ScriptedProcesses()
    try_compiled(processes, SUBJECT, [DEFAULT], save=tmp_path / "kept", tolerance=1e-3, progress=quiet)
    eager, cold, cached = processes.jobs
    assert eager.options is None
    assert cold.save == cached.load
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["default"]


def test_a_cache_that_is_missed_is_not_kept(tmp_path: Path) -> None:
    processes = ScriptedProcesses(cached=run(counted=counters(graph_hits=0, graph_misses=1)))
    with pytest.raises(NotProven, match="default: the saved cache was missed"):
        try_compiled(processes, SUBJECT, [DEFAULT], save=tmp_path / "kept", tolerance=1e-3, progress=quiet)
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_cache_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    processes = ScriptedProcesses()
    with pytest.raises(UsageError, match="default exists"):
        try_compiled(processes, SUBJECT, [DEFAULT], save=tmp_path, tolerance=1e-3, progress=quiet)
    assert processes.jobs == []


def test_a_start_from_a_saved_cache_compiles_nothing(tmp_path: Path) -> None:
    processes = ScriptedProcesses()
    trial = try_saved(processes, SUBJECT, [DEFAULT], load=tmp_path, tolerance=1e-3, progress=quiet)
    assert [job.load for job in processes.jobs] == [None, tmp_path / "default"]
    assert trial.compiled[0].cold is None
