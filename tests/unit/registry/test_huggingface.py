import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from registry.errors import UnfitModel
from registry.files import architecture_of

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


@pytest.mark.parametrize("name", ["pytorch_model.bin", "sub/optimizer.pt", "W.PKL", "last.ckpt", "rng.pth"])
def test_a_file_that_may_be_pickled_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnfitModel, match=f"^{name}: may hold pickled objects; convert the weights to safetensors$"):
        read_card(write(tmp_path), (*FILES, name))


def test_custom_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnfitModel, match=r"modeling_x\.py: custom code"):
        read_card(write(tmp_path), (*FILES, "modeling_x.py"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_pointer_to_custom_code_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).write_text(json.dumps({"auto_map": {"AutoModel": "evil--x"}}))

    with pytest.raises(UnfitModel, match="auto_map asks for custom code"):
        read_card(tmp_path, {*FILES, name})


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", r"no \*.safetensors"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, missing: str, said: str) -> None:
    with pytest.raises(UnfitModel, match=said):
        read_card(write(tmp_path), set(FILES) - {missing})


def test_an_empty_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UnfitModel, match="no files there"):
        read_card(tmp_path, ())


def test_a_config_that_is_not_json_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "config.json").write_text("{")

    with pytest.raises(UnfitModel, match=r"config\.json: not JSON"):
        read_card(tmp_path, FILES)


def test_a_model_has_exactly_one_architecture(tmp_path: Path) -> None:
    with pytest.raises(UnfitModel, match="expected exactly one"):
        read_card(write(tmp_path, architectures=[]), FILES)


@pytest.mark.parametrize("name", ["a\nb.json", "a\\b.json"])
def test_a_file_name_that_sha256sum_would_write_in_another_way_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnfitModel, match="is no name for a file of a model"):
        read_card(write(tmp_path), (*FILES, name))
