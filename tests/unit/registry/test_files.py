"""Files of a version: their digests, which are served, and what is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import ValidationError

from registry.conventions import SUMS, in_filter
from registry.errors import UnfitModel
from registry.files import (
    architecture_of,
    compare,
    digest_files,
    find_layout,
    places_in,
    read_sums,
    sums_of,
    whole_digest,
)
from registry.model import ModelVersion, Survey
from tidegate.core.errors import UsageError


def test_a_link_counts_as_the_file_it_leads_to(tmp_path: Path) -> None:
    cache = tmp_path / "models--acme--support-llm"
    folder = cache / "snapshots" / "c0ffee"
    folder.mkdir(parents=True)
    (cache / "blob").write_bytes(b"a")
    (folder / "config.json").symlink_to("../../blob")
    (folder / "again.json").symlink_to("config.json")

    assert digest_files(folder) == dict.fromkeys(("again.json", "config.json"), hashlib.sha256(b"a").hexdigest())


@pytest.mark.parametrize("target", ["/proc/self/environ", "../key", "../m2/key"])
@pytest.mark.parametrize("folder", ["m", "snapshots/m", "models--a--b/snapshots/m"])
def test_a_link_out_of_the_folder_is_refused(target: str, folder: str, tmp_path: Path) -> None:
    model = tmp_path / "a" / "b" / folder
    model.mkdir(parents=True)
    for key in (tmp_path / "key", tmp_path / "m2" / "key"):
        key.parent.mkdir(exist_ok=True)
        key.write_text("secret")
    (model / "notes.txt").symlink_to(target if target.startswith("/") else tmp_path / target.removeprefix("../"))
    with pytest.raises(UnfitModel, match=r"notes\.txt: a link out of "):
        digest_files(model)


def test_sha256sum_reads_the_sums_and_their_digest_is_the_whole_one(tmp_path: Path) -> None:
    for name in ("b", "a b", "Z"):
        (tmp_path / name).write_text(name)
    files = digest_files(tmp_path)
    (tmp_path / SUMS).write_text(sums_of(files))
    done = subprocess.run(["sha256sum", "-c", SUMS], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "Z: OK\na b: OK\nb: OK\n"
    # They are no file of the model.
    assert digest_files(tmp_path) == read_sums(sums_of(files)) == files
    assert whole_digest(files) == hashlib.sha256((tmp_path / SUMS).read_bytes()).hexdigest()


@pytest.mark.parametrize("text", ["no digest\n", f"{'1' * 64} a\n", f"{'1' * 64}  a\n\n"])
def test_a_line_that_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a line is no SHA-256"):
        read_sums(text)


def test_a_difference_names_every_file() -> None:
    found = compare({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"})

    assert found == "changed: b; missing: c; extra: d"


@pytest.mark.parametrize("path", ["/etc/passwd", "../prod.conf", "a/../../b", "./a", "a//b", "", "a\\b"])
def test_no_file_of_a_version_has_a_path_that_leads_out_of_its_folder(path: str) -> None:
    with pytest.raises(ValidationError, match="a path of a file below the model's folder"):
        ModelVersion(name="m", version="1", digest="d" * 64, files={path: "d" * 64}, size_bytes=0)


@pytest.mark.parametrize("digest", ["/victim", "../victim", "D" * 64, "d" * 63, "d" * 65, "d" * 64 + "\n", " "])
def test_a_digest_is_a_digest_and_never_a_path(digest: str) -> None:
    with pytest.raises(ValidationError, match="should match pattern"):
        ModelVersion(name="m", version="1", digest=digest, files={}, size_bytes=0)


@pytest.mark.parametrize("name", ["m' OR name LIKE '%", 'm"', "m`", "m\\"])
def test_a_name_never_says_more_than_a_name_in_a_filter(name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a model"):
        in_filter(name)


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


LAYOUTS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "wherever it lies": ([*below("data/export/hf"), "MLmodel", "notes/readme.md"], ("data/export/hf",)),
    "with a tokenizer of its own": ([*below("model"), *below("components/tokenizer", HF[2:3])], ("model",)),
    "with checkpoints below it": ([*below("model"), *below("model/checkpoint-10")], ("model",)),
    "the tokenizer that transformers logs next to it": (list(TRANSFORMERS), ("model", "components/tokenizer")),
    "the artifacts themselves": ([*HF, "MLmodel", "conda.yaml", "requirements.txt", "input_example.json"], ("",)),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_the_one_folder_with_a_model_is_found(case: str) -> None:
    paths, folders = LAYOUTS[case]
    layout = survey(paths)
    assert (layout.folders, "MLmodel" in layout.places) == (folders, False)
    assert set(HF) - {"model.safetensors"} <= layout.places.keys()


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


def test_of_several_folders_none_is_guessed() -> None:
    paths = [*below("base"), *below("tuned")]

    with pytest.raises(
        UnfitModel, match=r"^models:/m/1: 2 folders could be served, such as base and tuned; .*RUN/PATH', NAME\)$"
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


FILES = ("config.json", "model.safetensors", "tokenizer.json")


def read_card(folder: Path, paths: Iterable[str]) -> str:
    return architecture_of(str(folder), paths, lambda path: (folder / path).read_bytes())


def write(folder: Path, **config: object) -> Path:
    for name in FILES:
        (folder / name).write_text("{}")
    described = {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "transformers_version": "5.1.0"}
    (folder / "config.json").write_text(json.dumps(described | config))
    return folder


def test_the_card_says_what_the_config_says(tmp_path: Path) -> None:
    assert read_card(write(tmp_path), FILES) == "LlamaForCausalLM"


BAD: dict[str, tuple[set[str], dict[str, object] | str, str]] = {
    **{name: ({*FILES, name}, {}, f"^{name}: may hold pickled objects; convert the weights to safetensors$")
       for name in ("pytorch_model.bin", "sub/optimizer.pt", "W.PKL")},
    "code": ({*FILES, "modeling_x.py"}, {}, r"modeling_x\.py: custom code"),
    "a pointer to code": (set(FILES), {"auto_map": {"AutoModel": "evil--x"}}, "auto_map asks for custom code"),
    "no config": (set(FILES) - {"config.json"}, {}, "no config.json"),
    "no weights": (set(FILES) - {"model.safetensors"}, {}, r"no \*.safetensors"),
    "no tokenizer": (set(FILES) - {"tokenizer.json"}, {}, "no tokenizer"),
    "no JSON": (set(FILES), "{", r"config\.json: not JSON"),
    "no architecture": (set(FILES), {"architectures": []}, "expected exactly one"),
    "a line end": ({*FILES, "a\nb.json"}, {}, "is no name for a file of a model"),
    "a backslash": ({*FILES, "a\\b.json"}, {}, "is no name for a file of a model"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_served_is_refused_by_name(tmp_path: Path, case: str) -> None:
    paths, config, said = BAD[case]
    write(tmp_path, **(config if isinstance(config, dict) else {}))
    if isinstance(config, str):
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(UnfitModel, match=said):
        read_card(tmp_path, paths)


def test_a_pointer_to_code_in_any_description_is_refused(tmp_path: Path) -> None:
    (write(tmp_path) / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": "evil--x"}}))
    with pytest.raises(UnfitModel, match=r"tokenizer_config\.json: auto_map"):
        read_card(tmp_path, {*FILES, "tokenizer_config.json"})
