"""Each way in which a compile cache can fail to be one, and the words in which the build says so."""

from engine_images.compile.logprobs import Agreement
from engine_images.compile.proof import Proof, Started, added, named
from engine_images.compile.start_log import StartLog
from engine_images.manifest import CompileKey

KEY = CompileKey(factors={"vllm": "0.32.0", "model_config.dtype": "float32", "model_config.hash": "aa"})
AGREE = Agreement(prompts=50, tokens=900, largest=0.0008, p99=0.0002, answers_alike=50)


def started(init: float, *, loaded: bool = False, refused: str = "", key: CompileKey | None = KEY) -> Started:
    log = StartLog(init_seconds=init, loaded=loaded, saved=not loaded, refused=refused)
    return Started(log=log, seconds=init + 12, memory_bytes=1 << 30, key=key)


def proof(built: Started, *, rebuilt: tuple[str, ...] = (), agreement: Agreement = AGREE) -> Proof:
    return Proof(
        cold=started(80),
        built=built,
        eager=started(0.5, key=None),
        rebuilt=rebuilt,
        agreement=agreement,
        tolerance=0.01,
    )


def test_a_cache_that_is_loaded_quick_and_right_is_proven() -> None:
    assert proof(started(4, loaded=True)).problems() == ()


def test_a_miss_names_the_factor() -> None:
    other = CompileKey(factors=KEY.factors | {"model_config.dtype": "bfloat16", "model_config.hash": "bb"})

    (first, *_) = proof(started(80, key=other)).problems()

    assert first == "the compile cache was missed: model_config.dtype: float32 here, bfloat16 in the other"


def test_a_miss_by_a_part_without_fields_names_the_part() -> None:
    other = CompileKey(factors=KEY.factors | {"lora_config.hash": "1"})

    assert "lora_config.hash: nothing here, 1 in the other" in proof(started(80, key=other)).problems()[0]


def test_a_load_that_vllm_refused_says_its_reason() -> None:
    assert proof(started(80, refused="Compile cache file corrupted.")).problems()[0] == (
        "the compile cache was missed: Compile cache file corrupted."
    )


def test_a_logged_hit_with_kernels_built_again_is_no_hit() -> None:
    (problem,) = proof(started(17, loaded=True), rebuilt=("inductor_cache/3k/c.so",)).problems()

    assert problem == "the compiled model was loaded, but 1 of its kernels were built again"


def test_a_logged_hit_that_takes_as_long_as_compiling_is_no_hit() -> None:
    (problem,) = proof(started(41, loaded=True)).problems()

    assert problem == "the built engine took 41.0 s to initialize, a cold one 80.0 s"


def test_another_model_than_eager_is_refused_with_the_difference() -> None:
    apart = AGREE.model_copy(update={"largest": 0.5})

    (problem,) = proof(started(4, loaded=True), agreement=apart).problems()

    assert problem == "compiled and eager differ by up to 0.5 in log-probability; 0.01 is accepted"


def test_a_hash_is_left_out_when_its_fields_say_more() -> None:
    lines = ("a.hash: 1 here, 2 in the other", "a.x: 1 here, 2 in the other", "b.hash: 1 here, 2 in the other")

    assert named(lines) == lines[1:]


def test_only_kernels_count_as_built_again() -> None:
    before = {"k/a.so": "1"}

    assert added(before, before | {"locks/a.lock": "0", "k/b.so": "2", "modelinfos/x.json": "3"}) == ("k/b.so",)
