from pathlib import Path

import pytest

from tidegate.cli import main

pytestmark = pytest.mark.long


@pytest.mark.parametrize("shape", ["8by128", "8x", "0x4", "-1x4", "²x2"])
def test_a_shape_that_is_none_is_refused(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "torch", "models.py:encoder", f"--shape={shape}"]) == 2
    assert "expected sizes such as 8x128" in capsys.readouterr().err


def test_a_cache_is_either_made_or_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "torch", "models.py:encoder", "--save", "a", "--load", "b"]) == 2
    assert "--save and --load exclude each other" in capsys.readouterr().err


def test_a_cache_that_is_there_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "default").mkdir()
    assert main(["engine", "torch", "models.py:encoder", "--save", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "default exists; remove it, or start from it with --load" in told
    assert "`engine torch` goes with the next release" in told
