import io

import pytest
from fakes.torch_runs import DEFAULT, SUBJECT, run
from rich.console import Console

from engine_images.torch_compile.compare import rows
from engine_images.torch_compile.model import Compiled, Trial
from tidegate.cli import main
from tidegate.cli.torch_table import WIDTH, table


def test_the_table_fits_and_has_every_number() -> None:
    compiled = Compiled(options=DEFAULT, cold=run(per_second=150, speedup=1.5), cached=run(per_second=200, speedup=2.0))
    console = Console(width=WIDTH, file=io.StringIO(), record=True)
    console.print(table(rows(Trial(subject=SUBJECT, eager=run(), compiled=(compiled,)))))
    header, first, _, cached = console.export_text().splitlines()[:4]
    assert header.split()[:2] == ["shape", "how"]
    assert first.split() == ["1x64", "eager", "6,400", "tokens", "-", "10.0", "12.0", "500.0", "MB", "5.0", "-", "0"]
    assert cached.split()[1:7] == ["default,", "saved", "cache", "12,800", "tokens", "2.00"]


@pytest.mark.parametrize("shape", ["8by128", "8x", "0x4", "-1x4", "²x2"])
def test_a_shape_that_is_none_is_refused(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "torch", "models.py:encoder", f"--shape={shape}"]) == 2
    assert "expected sizes such as 8x128" in capsys.readouterr().err


def test_a_cache_is_either_made_or_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["engine", "torch", "models.py:encoder", "--save", "a", "--load", "b"]) == 2
    assert "give either --save or --load" in capsys.readouterr().err
