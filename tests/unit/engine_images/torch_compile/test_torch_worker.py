"""The parts of the process that need no torch."""

import pytest

from engine_images.build.torch_run import KINDS, Counters, TorchMachine, TorchRun
from engine_images.environment.torch_worker.job import TrialFailure, failure_of, graph_break, one_line
from engine_images.environment.torch_worker.run import Timed, percentile

pytestmark = pytest.mark.long

TORCH_SAYS = """Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs=False.
  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`

from user code:
   File "/models/bad.py", line 7, in forward
    print("hello", y.sum().item())
"""


class Unsupported(RuntimeError):
    """Named as torch's own."""


class OutOfMemoryError(RuntimeError):
    """Named as torch's own."""


def test_a_graph_break_is_told_with_its_reason_and_its_place() -> None:
    assert graph_break(TORCH_SAYS) == (
        "Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs=False."
        " (/models/bad.py:7 in forward)"
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unsupported(TORCH_SAYS), "graph_break"),
        (OutOfMemoryError("CUDA out of memory"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("[enforce fail] err == 0. can't allocate memory"), "out_of_memory"),
        (RuntimeError("InvalidCxxCompiler: No working C++ compiler found"), "no_compiler"),
        (TrialFailure("wrong_shape", "x"), "wrong_shape"),
    ],
)
def test_what_torch_raises_has_a_kind_that_the_other_side_knows(error: Exception, kind: str) -> None:
    failure = failure_of(error)
    assert failure is not None
    assert failure.kind == kind
    assert kind in KINDS


def test_a_models_own_error_is_not_explained_away() -> None:
    assert failure_of(ValueError("the tokenizer is not there")) is None


def test_pages_become_one_line_that_is_not_too_long() -> None:
    assert one_line("\n\n  first \nsecond") == "first"
    assert len(one_line("x" * 5000)) == 300


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_a_percentile_is_one_of_the_values(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_a_speedup_is_the_median_of_pairs_whatever_the_machine_does_meanwhile() -> None:
    assert Timed(seconds=[1.0, 10.0, 1.0], partner=[2.0, 20.0, 3.0], errors=0).speedup() == 2.0
    assert Timed(seconds=[1.0], partner=[], errors=0).speedup() is None


def run(**counted: int) -> TorchRun:
    names = ("graph_hits", "graph_misses", "graph_bypassed", "autograd_hits", "autograd_misses", "graph_breaks")
    return TorchRun(
        machine=TorchMachine(device="a CPU", torch="2.13.0+cpu"),
        seconds={"ready": 5.0},
        shapes=(),
        memory_bytes=1,
        gpu_peak_bytes=None,
        counters=Counters(**dict.fromkeys((*names, "kernels_built"), 0) | counted),
        agreement=None,
        factors={"torch": "2.13.0+cpu"},
        saved_bytes=None,
    )


@pytest.mark.parametrize(
    ("counted", "loaded", "refused"),
    [
        ({"graph_hits": 1}, True, "0 graphs compiled again, 1 found"),
        ({"graph_hits": 1, "graph_misses": 2}, False, "2 graphs compiled again, 1 found"),
        ({"graph_hits": 1, "graph_bypassed": 1}, False, "1 graphs compiled again, 1 found"),
        ({}, False, "0 graphs compiled again, 0 found"),
    ],
)
def test_torchs_own_counters_say_whether_the_cache_was_loaded(
    counted: dict[str, int], loaded: bool, refused: str
) -> None:
    log = run(**counted).start().log
    assert (log.loaded, log.refused) == (loaded, refused)


def test_an_eager_run_has_no_key() -> None:
    assert run().start(eager=True).key is None
    assert run().start().key
