"""A caller's folder with one of our names never becomes ours in silence."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tidegate.cli.endings import PACKAGES

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())


def test_every_package_of_the_wheel_is_looked_for() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(["tidegate", *PACKAGES]) == sorted(wheel)


def test_a_package_of_the_caller_is_refused_by_its_folder(tmp_path: Path) -> None:
    name = PACKAGES[0]
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    result = tidegate("--help", inside=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(
        f"tidegate: the package `{name}` comes from {tmp_path.resolve() / name}, not from tidegate; start tidegate by"
    )


def test_a_folder_that_is_no_package_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "gates").mkdir()
    assert tidegate("--help", inside=tmp_path).returncode == 0


def tidegate(*arguments: str, inside: Path) -> subprocess.CompletedProcess[str]:
    """The command as `python -c` runs it, which looks for packages in the caller's folder first."""
    code = "import sys; from tidegate.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=inside, capture_output=True, text=True, check=False
    )
