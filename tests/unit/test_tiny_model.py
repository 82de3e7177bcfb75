from __future__ import annotations

from pathlib import Path

from tidegate.testing import write_tiny_model


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_one_seed_gives_the_same_bytes_everywhere(tmp_path: Path) -> None:
    assert contents(write_tiny_model(tmp_path / "a", seed=3)) == contents(write_tiny_model(tmp_path / "b", seed=3))


def test_two_seeds_differ_in_their_weights_only(tmp_path: Path) -> None:
    first, second = (contents(write_tiny_model(tmp_path / str(seed), seed=seed)) for seed in (0, 1))
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}
