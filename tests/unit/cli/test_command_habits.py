"""What people type by habit works: `-h`, `-o`, global options on either side of the command, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate import __version__
from tidegate.cli import command_tree, main
from tidegate.cli.command import SECTIONS, SHOWN
from tidegate.cli.settings import Output, print_data
from tidegate.core.process import note

TIDEGATE = Path(sys.executable).with_name("tidegate")


def root() -> Any:
    return command_tree()


def groups() -> list[str]:
    return [name for name, command in root().commands.items() if hasattr(command, "commands")]


NOISY = ["schema"]


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """`tidegate schema` tells the person who waits something."""

    def run(*_: object) -> str:
        note("working")
        return "done\n"

    monkeypatch.setattr("tidegate.cli.project.schema_text", run)
    return monkeypatch


def test_the_version_imports_no_command() -> None:
    code = "import sys\nfrom tidegate.cli import main\nmain(['--version'])\nprint('typer' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == f"tidegate {__version__}\nFalse\n"


@pytest.mark.parametrize("words", [(), ("deliver",), ("gate", "check"), *((name,) for name in groups())], ids=" ".join)
def test_h_is_help_everywhere(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert main([*words, "-h"]) == 0
    short = capsys.readouterr().out
    assert main([*words, "--help"]) == 0
    assert capsys.readouterr().out == short
    assert "-h, --help" in short


@pytest.mark.parametrize("group", groups())
def test_a_group_alone_prints_its_help_and_did_nothing(capsys: pytest.CaptureFixture[str], group: str) -> None:
    assert main([group]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"Usage: tidegate {group} [OPTIONS] COMMAND [ARGS]...")


def test_the_top_help_is_in_sections_and_cuts_nothing_in_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:-1] for line in lines if line[:-1] in SECTIONS] == list(SECTIONS)
    assert not any(line.endswith("...") for line in lines[1:])
    for name in SHOWN:
        (line,) = (line for line in lines if line.startswith(f"  {name} "))
        assert line.endswith(".")
    assert not any(line.startswith("  stage ") for line in lines)


@pytest.mark.parametrize("arguments", [["-q", *NOISY], [*NOISY, "-q"], ["--quiet", *NOISY, "--debug"]])
def test_quiet_stands_on_either_side_of_the_command(
    capsys: pytest.CaptureFixture[str], noisy: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr() == ("done\n", "")


def test_quiet_holds_for_one_command_only(capsys: pytest.CaptureFixture[str], noisy: pytest.MonkeyPatch) -> None:
    main([*NOISY, "-q"])
    main(NOISY)
    assert capsys.readouterr().err == "working\n"


@pytest.mark.parametrize("before", [True, False])
def test_a_kubeconfig_holds_for_the_process(noisy: pytest.MonkeyPatch, tmp_path: Path, before: bool) -> None:
    noisy.setenv("KUBECONFIG", "")
    said = ["--kubeconfig", str(tmp_path / "config")]
    assert main([*said, *NOISY] if before else [*NOISY, *said]) == 0
    assert os.environ["KUBECONFIG"] == str(tmp_path / "config")


def test_json_and_yaml_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"region": "eu-west-1", "file": Path("a"), "weights": [5, 25], "note": "two\nlines"}
    print_data(data, Output.JSON)
    as_json = capsys.readouterr().out
    print_data(data, Output.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == json.loads(as_json) == data | {"file": "a"}


def test_a_shell_that_asks_what_may_follow_is_answered() -> None:
    asks = {"_TIDEGATE_COMPLETE": "complete_bash", "COMP_WORDS": "tidegate stat", "COMP_CWORD": "1"}
    run = subprocess.run([TIDEGATE], capture_output=True, text=True, check=True, env=os.environ | asks)
    assert (run.stdout, run.stderr) == ("status\n", "")
