"""The parts of the process that need no torch."""

import pytest

from engine_images.torch_compile.environment.tidegate_torch.failures import Failure, failure_of, graph_break, one_line
from engine_images.torch_compile.environment.tidegate_torch.key import differences, variables
from engine_images.torch_compile.environment.tidegate_torch.measure import Timed, percentile
from engine_images.torch_compile.errors import KINDS

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
        (Failure("wrong_shape", "x"), "wrong_shape"),
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


def test_every_factor_that_differs_is_named_with_both_values() -> None:
    assert differences({"torch": "2.13", "threads": "2", "cpu": "avx2"}, {"torch": "2.13", "threads": "4"}) == [
        "cpu: saved with avx2, here nothing",
        "threads: saved with 2, here 4",
    ]


def test_variables_of_the_compilers_count_except_where_they_put_things() -> None:
    environment = {"TORCHINDUCTOR_FREEZING": "1", "TORCHINDUCTOR_CACHE_DIR": "/x", "HOME": "/root"}
    assert variables(environment) == {"env:TORCHINDUCTOR_FREEZING": "1"}


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_a_percentile_is_one_of_the_values(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_a_speedup_is_the_median_of_pairs_whatever_the_machine_does_meanwhile() -> None:
    assert Timed(seconds=[1.0, 10.0, 1.0], beside=[2.0, 20.0, 3.0], errors=0).speedup() == 2.0
    assert Timed(seconds=[1.0], beside=[], errors=0).speedup() is None
