from collections.abc import Iterable

import pytest

from registry.errors import UnfitModel
from registry.files import find_layout, places_in
from registry.model import Survey

HF = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
TRANSFORMERS = (
    "MLmodel",
    "requirements.txt",
    "model/config.json",
    "model/generation_config.json",
    "model/model-00001-of-00002.safetensors",
    "model/model-00002-of-00002.safetensors",
    "components/tokenizer/tokenizer.json",
    "components/tokenizer/tokenizer_config.json",
)


def survey(paths: Iterable[str]) -> Survey:
    return find_layout("models:/m/1", "memory:/m", dict.fromkeys(paths, 1))


def below(folder: str, names: tuple[str, ...] = HF) -> list[str]:
    return [f"{folder}/{name}" for name in names]


@pytest.mark.parametrize("folder", ["model", "data/export/hf", "artifacts/snapshots/7"])
def test_the_one_folder_with_a_model_is_found_wherever_it_lies(folder: str) -> None:
    layout = survey([*below(folder), "MLmodel", "notes/readme.md"])

    assert layout.folders == (folder,)
    assert layout.places == dict(zip(HF, below(folder), strict=True))


def test_artifacts_that_are_the_model_themselves_leave_mlflows_own_descriptions_out() -> None:
    layout = survey([*HF, "MLmodel", "conda.yaml", "requirements.txt", "input_example.json"])

    assert layout.folders == ("",)
    assert set(layout.places) == set(HF)


def test_the_tokenizer_that_transformers_logs_next_to_the_model_belongs_to_it() -> None:
    layout = survey(TRANSFORMERS)

    assert layout.folders == ("model", "components/tokenizer")
    assert layout.places["tokenizer.json"] == "components/tokenizer/tokenizer.json"
    assert layout.places["config.json"] == "model/config.json"
    assert len(layout.places) == 6


def test_a_folder_with_a_tokenizer_of_its_own_needs_no_other() -> None:
    assert survey([*below("model"), *below("components/tokenizer", ("tokenizer.json",))]).folders == ("model",)


def test_what_lies_in_both_folders_is_taken_from_the_first() -> None:
    paths = ["model/config.json", "tokenizer/config.json", "tokenizer/tokenizer.json"]

    places = places_in(("model", "tokenizer"), paths)

    assert places == {"config.json": "model/config.json", "tokenizer.json": "tokenizer/tokenizer.json"}


def test_folders_whose_names_begin_alike_are_two() -> None:
    assert places_in(("model",), ["model/a", "model-old/b"]) == {"a": "model/a"}


def test_code_and_pickles_next_to_the_weights_are_left_out() -> None:
    layout = survey([*below("model"), "model/training_args.bin", "model/rng/state.PT", "model/modeling.py"])

    assert set(layout.places) == set(HF)
    assert layout.left_out == ("model/modeling.py", "model/rng/state.PT", "model/training_args.bin")


def test_checkpoints_below_a_model_are_a_part_of_it() -> None:
    assert survey([*below("model"), *below("model/checkpoint-10")]).folders == ("model",)


def test_of_several_folders_none_is_guessed() -> None:
    paths = [*below("base"), *below("tuned")]

    with pytest.raises(
        UnfitModel, match=r"^models:/m/1: 2 folders could be served, such as base and tuned; .*RUN/PATH$"
    ):
        survey(paths)


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["MLmodel", "model.xgb"],
        ["model/config.json", "model/pytorch_model.bin"],
        ["peft/adapter_config.json", "peft/adapter_model.safetensors"],
    ],
)
def test_what_cannot_be_served_comes_with_advice(paths: list[str]) -> None:
    with pytest.raises(UnfitModel, match=r"no folder of it has config.json and \*.safetensors; log what "):
        survey(paths)
