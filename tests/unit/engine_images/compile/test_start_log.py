"""The lines are vLLM 0.32's own, from starts on a CPU."""

from engine_images.compile.start_log import read_start_log

PREFIX = "(EngineCore pid=6264) INFO 11-21 16:16:29"
SAVED = f"{PREFIX} [decorators.py:743] [backbone] saved AOT compiled function to /c/torch_aot_compile/8d/rank_0_0/model"
LOADED = f"{PREFIX} [decorators.py:320] [backbone] Directly load AOT compilation from path /c/8d/rank_0_0/model"
REFUSED = (
    "(EngineCore pid=1) WARNING 11-21 16:16:29 [decorators.py:333] [backbone] Compiling model again due to a load "
    "failure from /c/8d/rank_0_0/model, reason: 'function' object has no attribute 'finalize_loading'"
)
INIT = f"{PREFIX} [core.py:402] init engine (profile, create kv cache, warmup model) took 87.50 s"


def test_a_cold_start_compiles_and_keeps() -> None:
    log = read_start_log("\n".join([SAVED, INIT]))

    assert (log.init_seconds, log.loaded, log.saved, log.refused) == (87.5, False, True, "")


def test_a_built_engine_loads() -> None:
    log = read_start_log("\n".join([LOADED, INIT]))

    assert (log.loaded, log.saved) == (True, False)


def test_a_model_that_was_compiled_again_was_not_loaded() -> None:
    log = read_start_log("\n".join([LOADED, REFUSED, SAVED, INIT]))

    assert not log.loaded
    assert log.refused == "'function' object has no attribute 'finalize_loading'"


def test_an_eager_start_neither_loads_nor_compiles() -> None:
    log = read_start_log(INIT)

    assert (log.loaded, log.saved) == (False, False)


def test_a_start_that_died_has_no_time() -> None:
    assert read_start_log("Traceback (most recent call last):").init_seconds is None


def test_the_slowest_rank_counts() -> None:
    assert read_start_log("\n".join([INIT, INIT.replace("87.50", "91.25")])).init_seconds == 91.25
