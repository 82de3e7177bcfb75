"""What `benchmarks/gpu.sh` decides without an engine: time, what is left out, what runs again, ratios, readings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.gpu.delivery import as_expected as deliveries_as_expected
from benchmarks.gpu.delivery import command
from benchmarks.gpu.engines import settings_of
from benchmarks.gpu.fit import own_words, settings_for, told
from benchmarks.gpu.footprints import footprint_of
from benchmarks.gpu.hardware import accelerator_here, bytes_by_process
from benchmarks.gpu.misses import CHANGES, Changed, as_expected, changes_there
from benchmarks.gpu.models import named, tiny_models
from benchmarks.gpu.reports import PartReport, close, is_measured, read_report, rounds
from benchmarks.gpu.run import every, parse
from benchmarks.gpu.starts import medians
from benchmarks.gpu.streams import StreamTimes, figures, summed_up
from benchmarks.gpu.task import SHARES, Task, TimeLimit, part_seconds
from benchmarks.gpu.throughput import FULL, WAYS, CompiledWay, groups, ways_there
from engine_images.accelerators import DEVICES, GIBIBYTE, MEBIBYTE, Accelerator
from engine_images.launch import launch_of
from engine_images.manifest import CompileKey
from engine_images.model import EngineEnvironment
from tidegate.core.errors import OutsideError, UsageError


class Hand:
    """A clock that somebody turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def report(tmp_path: Path) -> PartReport:
    return PartReport(tmp_path / "part.json", {"part": "starts"})


def left_out(tmp_path: Path) -> dict[str, str]:
    found: dict[str, str] = read_report(tmp_path / "part.json")["left_out"]
    return found


def test_parts_that_take_all_of_their_time_take_no_more_than_there_is() -> None:
    left, waiting = 2400.0, list(SHARES)
    while waiting:
        part, *waiting = waiting
        left -= part_seconds(part, waiting, left)
    assert left == pytest.approx(0)


def test_what_one_part_leaves_over_is_the_later_ones() -> None:
    assert part_seconds("fit", ["delivery"], 900) == 200
    assert part_seconds("delivery", [], 900 - 100) == 800


def test_a_round_for_which_no_time_is_left_is_left_out_by_name(report: PartReport, tmp_path: Path) -> None:
    clock = Hand()
    limit, run = TimeLimit(100, clock), []
    for number in rounds(report, limit, 5, "run"):
        run.append(number)
        clock.now += 30
    assert run == [0, 1, 2]
    assert left_out(tmp_path) == {"run 4 to 5": "one takes 30 s, and 10 s were left"}


def test_rounds_for_which_there_is_time_are_all_run(report: PartReport, tmp_path: Path) -> None:
    assert list(rounds(report, TimeLimit(100, Hand()), 3, "run")) == [0, 1, 2]
    assert left_out(tmp_path) == {}


def test_a_part_with_an_error_keeps_what_it_found_and_is_not_measured(report: PartReport, tmp_path: Path) -> None:
    report.put("medians", {"tiny": 1})
    with report.going_on("build of other"):
        raise OutsideError("it is slower than eager", hint="see its log")
    report.end(3.21)
    written = read_report(tmp_path / "part.json")
    assert written["state"] == "failed"
    assert written["errors"] == {"build of other": "OutsideError: it is slower than eager; see its log"}
    assert written["found"] == {"medians": {"tiny": 1}}
    assert written["seconds"] == 3.2
    assert not is_measured(tmp_path / "part.json")


def test_a_bug_is_not_taken_for_a_finding(report: PartReport) -> None:
    with pytest.raises(KeyError), report.going_on("start"):
        raise KeyError("seconds")


def test_a_part_that_is_ended_from_outside_keeps_what_it_had_found(report: PartReport, tmp_path: Path) -> None:
    report.put("medians", {"tiny": 1})
    close(tmp_path / "part.json", "starts", "stopped: not done after 9 s")
    written = read_report(tmp_path / "part.json")
    assert (written["state"], written["errors"]["starts"]) == ("failed", "stopped: not done after 9 s")
    assert written["found"] == {"medians": {"tiny": 1}}


def test_a_part_that_left_no_json_has_one_all_the_same(tmp_path: Path) -> None:
    close(tmp_path / "fit.json", "fit", "its process ended with exit code -9")
    assert not is_measured(tmp_path / "fit.json")
    assert read_report(tmp_path / "fit.json")["part"] == "fit"


def test_what_is_measured_is_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("fit", "misses"):
        PartReport(tmp_path / f"{part}.json", {"part": part}).end(1)
    arguments = ["--to", str(tmp_path), "--small", "--part", "fit", "--part", "misses"]
    assert every(parse(arguments), arguments) == 0
    assert capsys.readouterr().out.count("measured before") == 2


def test_no_part_begins_without_time_and_the_exit_code_says_so(tmp_path: Path) -> None:
    arguments = ["--to", str(tmp_path), "--small", "--part", "fit", "--seconds", "10"]
    assert every(parse(arguments), arguments) == 1
    assert read_report(tmp_path / "fit.json")["errors"]["fit"].startswith("not begun: 10 s were left")


def test_parts_run_in_one_order_however_they_are_named() -> None:
    assert parse(["--part", "fit", "--part", "starts"]).parts == ("starts", "fit")
    assert parse([]).parts == tuple(SHARES)
    assert (parse([]).runs, parse(["--small"]).runs, parse(["--small", "--runs", "3"]).runs) == (5, 1, 3)


def test_no_runs_are_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--runs", "0"])
    assert ended.value.code == 2
    assert "found 0; expected 1 or more" in capsys.readouterr().err


def test_the_gpu_is_told_by_its_drivers_name() -> None:
    assert accelerator_here(["NVIDIA H100 80GB HBM3"], small=False) is Accelerator.H100
    assert accelerator_here(["NVIDIA L4", "NVIDIA L4"], small=True) is Accelerator.L4
    assert accelerator_here([], small=True) is Accelerator.CPU


def test_without_a_gpu_only_the_small_measurement_is_made() -> None:
    with pytest.raises(OutsideError, match=re.escape("no GPU (nvidia-smi); with --small it runs on a CPU")):
        accelerator_here([], small=False)


def test_a_gpu_of_unknown_memory_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"found the GPU Quadro P400; expected one of .*NVIDIA H100 PCIe"):
        accelerator_here(["Quadro P400"], small=False)


def test_memory_is_read_by_process_and_what_the_driver_does_not_tell_is_none() -> None:
    lines = ["4711, 5120", "4711, 16", "4712, [N/A]", "[Not Found], 12"]
    assert bytes_by_process(lines) == {4711: 5136 * MEBIBYTE}


def test_a_cpu_has_eager_and_default_and_a_reason_for_each_of_the_rest() -> None:
    there, absent = ways_there(on_cpu=True)
    assert [way.name for way in there] == ["eager", "default"]
    assert set(absent) == {"max-autotune", "cuda-graphs-off", "cuda-graphs-on"}
    assert all(absent.values())
    assert ways_there(on_cpu=False) == (list(WAYS), {})


def test_engines_that_do_not_fit_next_to_each_other_are_measured_one_by_one() -> None:
    memory = DEVICES[Accelerator.H100].memory_bytes
    assert groups(WAYS, 10 * GIBIBYTE, memory) == [list(WAYS)]
    assert groups(WAYS, 20 * GIBIBYTE, memory) == [[way] for way in WAYS]
    assert groups(WAYS, 20 * GIBIBYTE, None) == [list(WAYS)]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_every_way_to_compile_is_one_that_a_spec_may_ask_for(way: CompiledWay) -> None:
    there, _ = ways_there(on_cpu=True)
    for accelerator in (Accelerator.H100, *((Accelerator.CPU,) if way in there else ())):
        settings = settings_of(accelerator, way.mode, way.arguments)
        vllm = settings.vllm.version
        environment = EngineEnvironment(python="python", vllm=vllm, recipe="", platform=accelerator.platform)
        said = " ".join(launch_of(settings, environment, name="bench").arguments)
        assert ("--enforce-eager" in said) is (way.name == "eager")
        assert ("--compilation-config" in said) is (way.name not in {"eager", "default"})


@pytest.mark.parametrize("accelerator", [Accelerator.CPU, Accelerator.H100])
def test_three_settings_have_three_expectations(accelerator: Accelerator, tmp_path: Path) -> None:
    model, needed = tiny_models(tmp_path)["tiny"], set()
    for setting in settings_for(on_cpu=accelerator is Accelerator.CPU):
        settings = settings_of(accelerator, setting.mode, setting.arguments)
        needed.add(footprint_of(model, settings).needed)
    assert len(needed) == 3


def test_each_term_is_told_and_what_was_measured(tmp_path: Path) -> None:
    setting = settings_for(on_cpu=False)[0]
    settings = settings_of(Accelerator.H100, setting.mode, setting.arguments)
    expected = footprint_of(tiny_models(tmp_path)["tiny"], settings)
    found = told(expected, expected.needed * 2)
    assert found["expected_mib"]["kv_cache"] == 2048
    assert {"weights", "process"} < found["expected_mib"].keys()
    assert found["expected_total_mib"] == pytest.approx(sum(found["expected_mib"].values()), abs=5)
    assert found["expected_over_measured"] == 0.5
    assert found["measured_total_mib"] == expected.needed * 2 // MEBIBYTE


def test_vllms_own_words_are_read_where_it_says_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "INFO Model loading took 0.93 GiB memory and 1.2 seconds\nGraph capturing finished in 4 secs, took 0.31 GiB"
    )
    assert own_words(log) == {"weights_gib": 0.93, "cuda_graphs_gib": 0.31}
    log.write_text("INFO ready\n")
    assert own_words(log) == {}


def test_each_stream_of_a_round_asks_as_often_and_few_streams_ask_enough() -> None:
    assert [FULL.requests(streams) for streams in (1, 8, 128)] == [8, 24, 384]


def test_what_only_the_other_kind_of_machine_has_is_left_out_by_name() -> None:
    there, absent = changes_there(on_cpu=True, small=False)
    assert absent["argument compilation-config"] == "only where a gpu computes"
    assert len(there) + len(absent) == len(CHANGES)
    there, absent = changes_there(on_cpu=False, small=False)
    assert absent == {"variable VLLM_CPU_OMP_THREADS_BIND": "only where a cpu computes"}
    assert changes_there(on_cpu=True, small=True)[1]["argument dtype"] == "--small"


KEY = CompileKey(factors={"torch": "2.13.0", "gpu": "NVIDIA L4", "argument:--dtype": "auto", "model_config": "ab"})


@pytest.mark.parametrize(
    ("change", "entrypoint", "failed", "expected"),
    [
        (Changed("same: nothing"), [], False, True),
        (Changed("same: nothing"), [], True, False),
        (Changed("same: seed"), ["argument:--seed"], False, False),
        (Changed("dtype", frozenset({"argument:--dtype"})), ["argument:--dtype"], True, True),
        (Changed("dtype", frozenset({"argument:--dtype"})), [], True, False),
        (Changed("dtype", frozenset({"argument:--dtype"})), ["argument:--dtype", "cpu"], True, False),
        (Changed("elsewhere", elsewhere=True), ["torch", "gpu"], False, True),
        (Changed("elsewhere", elsewhere=True), ["torch"], False, False),
    ],
)
def test_each_factor_that_was_changed_must_be_named_and_no_other(
    change: Changed, entrypoint: list[str], failed: bool, expected: bool
) -> None:
    assert as_expected(change, entrypoint, failed=failed, key=KEY) is expected


def test_ratios_are_of_medians() -> None:
    starts = {
        way: [{"seconds": second, "init_seconds": init} for second in seconds]
        for way, seconds, init in [("cold", [70, 90, 80], 40.0), ("kept", [20, 21, 40], 4.0), ("eager", [20], 0.5)]
    }
    assert medians(starts) == {
        "cold_seconds": 80,
        "kept_seconds": 21,
        "eager_seconds": 20,
        "cold_over_kept": 3.81,
        "kept_over_eager": 1.05,
        "cold_over_kept_init": 10.0,
    }


def test_an_initialization_that_nobody_told_has_no_ratio() -> None:
    starts = {way: [{"seconds": 10.0, "init_seconds": None}] for way in ("cold", "kept", "eager")}
    assert "cold_over_kept_init" not in medians(starts)


def test_figures_of_a_burst_are_of_all_its_streams() -> None:
    found = [StreamTimes(0.1, (0.01, 0.03), 3), StreamTimes(0.2, (0.02,), 2)]
    assert figures(found, seconds=2.0, core_seconds=0.5) == {
        "tokens_per_second": 2.5,
        "ttft_p50_ms": 100.0,
        "ttft_p95_ms": 200.0,
        "itl_p50_ms": 20.0,
        "itl_p95_ms": 30.0,
        "client_core": 0.25,
    }
    summed = summed_up([{"tokens_per_second": 3.0}, {"tokens_per_second": 1.0}, {"tokens_per_second": 2.0}])
    assert summed == {"tokens_per_second": {"median": 2.0, "all": [3.0, 1.0, 2.0]}}


def test_a_model_is_a_folder_with_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"found no config\.json in"):
        named([tmp_path])


def test_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    tiny = list(tiny_models(tmp_path).values())
    assert list(named(tiny)) == ["1-model", "2-model"]
    assert list(named([tiny[0]])) == ["model"]


def test_the_tiny_models_are_compiled_each_for_itself(tmp_path: Path) -> None:
    one, other = (folder / "config.json" for folder in tiny_models(tmp_path).values())
    assert one.read_bytes() != other.read_bytes()


def task(tmp_path: Path, accelerator: Accelerator, *, small: bool) -> Task:
    return Task(
        models={},
        accelerator=accelerator,
        small=small,
        runs=1,
        state=tmp_path,
        demo_models=tmp_path / "models",
        limit=TimeLimit(100),
    )


def test_the_gpu_is_the_deliveries_accelerator(tmp_path: Path) -> None:
    asked = command(task(tmp_path, Accelerator.H100, small=False))
    assert asked[asked.index("--accelerator") + 1] == "nvidia-h100-80gb"
    assert "--waves" not in asked
    asked = command(task(tmp_path, Accelerator.CPU, small=True))
    assert "--accelerator" not in asked
    assert asked[asked.index("--bad-versions") + 1] == "3"


@pytest.mark.parametrize(
    ("outcome", "users", "expected"),
    [
        ("rolled-back", {"requests": 100, "failed": 0, "cut": 0}, True),
        ("delivered", {"requests": 100, "failed": 0, "cut": 0}, False),
        ("rolled-back", {"requests": 100, "failed": 1, "cut": 1}, False),
        ("rolled-back", {"requests": 0, "failed": 0, "cut": 0}, False),
    ],
)
def test_deliveries_are_as_expected_only_when_no_request_failed(
    outcome: str, users: dict[str, int], expected: bool
) -> None:
    ended = [{"version": "2", "outcome": "delivered"}, {"version": "3", "outcome": outcome}]
    assert deliveries_as_expected({"deliveries": ended, "users": users}) is expected
