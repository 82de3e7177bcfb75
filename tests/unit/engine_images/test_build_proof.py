"""What proves a compile cache: vLLM's log, its keys, and log-probabilities against eager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_images.build.model import BuildRecord
from engine_images.build.proof import (
    Agreement,
    EngineStart,
    ScoredPrompt,
    StartLog,
    compare,
    kernels_added,
    read_start_log,
    speedup_of,
    without_hashes,
)
from engine_images.manifest import CompileKey


def scored(prompt: list[float], answer: str = "", logprobs: list[float] | None = None) -> ScoredPrompt:
    return ScoredPrompt(prompt=tuple(prompt), answer=tuple(answer), logprobs=tuple(logprobs or [-1.0] * len(answer)))


def test_the_largest_difference_of_all_prompts_is_found() -> None:
    eager = [scored([-1.0, -2.0]), scored([-3.0])]
    compiled = [scored([-1.0, -2.5]), scored([-3.1])]

    agreement = compare(eager, compiled)

    assert agreement.largest == pytest.approx(0.5)
    assert (agreement.prompts, agreement.tokens) == (2, 3)
    assert not agreement.within(0.4)
    assert agreement.within(0.6)


def test_what_follows_the_first_other_token_says_nothing() -> None:
    """A near tie that fell the other way makes another text: its probabilities are of something else."""
    eager = [scored([-1.0], "abcd", [-1.0, -1.0, -0.7, -5.0])]
    compiled = [scored([-1.0], "abXd", [-1.0, -1.25, -0.69, -1.0])]

    agreement = compare(eager, compiled)

    assert agreement.tokens == 3
    assert agreement.largest == pytest.approx(0.25)


def test_engines_that_split_a_prompt_otherwise_are_not_the_same_model() -> None:
    with pytest.raises(ValueError, match="a prompt of 2 tokens has 1"):
        compare([scored([-1.0, -2.0])], [scored([-1.0])])


def test_nothing_compared_proves_nothing() -> None:
    with pytest.raises(ValueError, match="no token"):
        compare([scored([])], [scored([])])


@given(st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0)), min_size=1, max_size=200))
def test_p99_never_exceeds_the_largest_and_is_one_of_the_differences(pairs: list[tuple[float, float]]) -> None:
    agreement = compare([scored([one for one, _ in pairs])], [scored([other for _, other in pairs])])

    differences = [abs(one - other) for one, other in pairs]
    assert agreement.p99 in differences
    assert agreement.p99 <= agreement.largest == max(differences)
    assert sum(difference <= agreement.p99 for difference in differences) >= 0.99 * len(pairs)


PREFIX = "(EngineCore pid=6264) INFO 11-21 16:16:29"
SAVED = f"{PREFIX} [decorators.py:743] [backbone] saved AOT compiled function to /c/torch_aot_compile/8d/rank_0_0/model"
LOADED = f"{PREFIX} [decorators.py:320] [backbone] Directly load AOT compilation from path /c/8d/rank_0_0/model"
REFUSED = (
    "(EngineCore pid=1) WARNING 11-21 16:16:29 [decorators.py:333] [backbone] Compiling model again due to a load "
    "failure from /c/8d/rank_0_0/model, reason: 'function' object has no attribute 'finalize_loading'"
)
INIT = f"{PREFIX} [core.py:402] init engine (profile, create kv cache, warmup model) took 87.50 s"


def test_a_model_that_was_compiled_again_was_not_loaded() -> None:
    log = read_start_log("\n".join([LOADED, REFUSED, SAVED, INIT]))

    assert (log.loaded, log.saved) == (False, True)
    assert log.refused == "'function' object has no attribute 'finalize_loading'"
    assert not read_start_log("\n".join([LOADED, SAVED, INIT])).loaded


def test_the_slowest_rank_counts() -> None:
    assert read_start_log("\n".join([INIT, INIT.replace("87.50", "91.25")])).init_seconds == 91.25


KEY = CompileKey(factors={"vllm": "0.32.0", "model_config.dtype": "float32", "model_config.hash": "aa"})
AGREE = Agreement(prompts=50, tokens=900, largest=0.0008, p99=0.0002)


def started(init: float, *, loaded: bool = False, refused: str = "", key: CompileKey | None = KEY) -> EngineStart:
    log = StartLog(init_seconds=init, loaded=loaded, saved=not loaded, refused=refused)
    return EngineStart(log=log, seconds=init + 12, memory_bytes=1 << 30, key=key)


def problem(built: EngineStart) -> str:
    eager = started(0.5, key=None)
    record = BuildRecord(
        engine="e", model="m", cold=started(80), built=built, eager=eager, agreement=AGREE, tolerance=0.01
    )
    return next(record.problems(0))


def test_a_load_that_vllm_refused_says_its_reason() -> None:
    refused = started(80, refused="Compile cache file corrupted.")

    assert problem(refused) == "the compile cache was missed: Compile cache file corrupted."


def test_a_logged_hit_that_takes_as_long_as_compiling_is_no_hit() -> None:
    assert problem(started(41, loaded=True)) == "the built engine took 41.0 s to initialize, a cold one 80.0 s"


def answered(*seconds: float) -> list[ScoredPrompt]:
    return [scored([-1.0]).model_copy(update={"seconds": each}) for each in seconds]


def test_a_speedup_is_the_median_over_the_prompts() -> None:
    assert speedup_of(answered(1.0, 2.0, 1.0), answered(1.5, 2.0, 9.0)) == 1.5
    assert speedup_of(answered(1.0), ()) is None


def test_a_hash_is_left_out_when_its_fields_say_more() -> None:
    lines = ("a.hash: 1 here, 2 in the other", "a.x: 1 here, 2 in the other", "b.hash: 1 here, 2 in the other")

    assert without_hashes(lines) == lines[1:]


def test_only_kernels_count_as_built_again() -> None:
    before = {"k/a.so": "1"}

    assert kernels_added(before, before | {"locks/a.lock": "0", "k/b.so": "2", "modelinfos/x.json": "3"}) == ("k/b.so",)
