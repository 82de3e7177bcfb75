import pytest
from fakes.torch_runs import DEFAULT, counters, run

from engine_images.torch_compile.model import Compiled, Run
from engine_images.torch_compile.proof import problems


def found(cached: Run, cold: Run | None = None) -> str:
    return "; ".join(problems(Compiled(options=DEFAULT, cold=cold or run(), cached=cached), 1e-3))


def test_a_cache_that_is_used_and_agrees_is_proven() -> None:
    assert found(run()) == ""


def test_graphs_that_are_compiled_again_are_a_miss_that_names_the_factor() -> None:
    odd = found(run(counted=counters(graph_hits=1, graph_misses=2), factors={"torch": "2.14.0"}))
    assert odd.startswith("the saved cache was missed: 2 graphs compiled again, 1 found")
    assert "torch: 2.13.0+cpu here, 2.14.0 in the other" in odd


@pytest.mark.parametrize("counted", [counters(graph_hits=0), counters(graph_bypassed=1)])
def test_nothing_found_is_a_miss_too(counted: dict[str, int]) -> None:
    assert "the saved cache was missed" in found(run(counted=counted))


def test_a_hit_whose_kernels_are_built_again_is_no_hit() -> None:
    assert found(run(counted=counters(kernels_built=3))).endswith("3 of its kernels were built again")


@pytest.mark.parametrize("difference", [0.01, float("inf"), float("nan")])
def test_outputs_that_differ_are_told_with_what_is_accepted(difference: float) -> None:
    assert f"differ by up to {difference:.3g}; 0.001 is accepted" in found(run(difference=difference))


def test_a_difference_of_the_cold_process_counts_as_well() -> None:
    assert found(run(), cold=run(difference=1.0)).startswith("cold: compiled and eager")


def test_another_model_in_every_process_is_not_called_a_difference_of_outputs() -> None:
    assert found(run(same_weights=False, difference=5.0)).startswith("the factory makes another model")


def test_calls_that_fail_are_counted() -> None:
    assert found(run(errors=2)) == "from the saved cache: 2 of 100 calls failed"
