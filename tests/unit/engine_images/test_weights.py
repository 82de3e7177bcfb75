from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine_images.checks.weights import read_weights
from engine_images.errors import NotAModel


def test_elements_are_counted_over_all_files(tmp_path: Path) -> None:
    save_file({"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.int8)}, tmp_path / "model-1.safetensors")
    save_file({"c": np.zeros((), np.float32)}, tmp_path / "model-2.safetensors", metadata={"format": "pt"})
    assert [(each.name, each.dtype, each.elements) for each in read_weights(tmp_path)] == [
        ("a", "F32", 6),
        ("b", "I8", 4),
        ("c", "F32", 1),
    ]


def test_a_folder_without_safetensors_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(NotAModel, match=r"has no \*\.safetensors file"):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x05" + b"\0" * 7 + b"{", b"\x02" + b"\0" * 7 + b"\xff\xfe"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(NotAModel, match=r"model\.safetensors is not a safetensors file"):
        read_weights(tmp_path)
