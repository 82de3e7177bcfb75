"""The command line's manners: one line on stderr that says what to do, and the exit code that was promised."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.core.errors import ExitCode, OutsideError


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command."""
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """`tidegate init` meets whatever a test puts in its way."""
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def raising(error: BaseException) -> object:
    def run(*_: object, **__: object) -> int:
        raise error

    return run


def test_without_arguments_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: tidegate [OPTIONS] COMMAND [ARGS]...")
    assert "Exit codes: 0 delivered, 1 rolled back or gate failed, 2 usage or spec" in out


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            OutsideError("Prometheus is not there", hint="run `tidegate setup`", detail="connection refused"),
            4,
            "tidegate: Prometheus is not there; run `tidegate setup`\nconnection refused\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/kept.jsonl"),
            4,
            "tidegate: /kept.jsonl: no space left on device\n",
        ),
        (KeyboardInterrupt(), 130, "tidegate: stopped\n"),
    ],
)
def test_what_is_no_bug_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], breaks: pytest.MonkeyPatch, *, error: BaseException, code: int, line: str
) -> None:
    breaks.setattr("tidegate.cli.project.write_example", raising(error))
    assert said(capsys, "init") == (code, "", line)


def test_a_bug_has_its_traceback_without_secrets_and_a_code_of_its_own(
    capsys: pytest.CaptureFixture[str], breaks: pytest.MonkeyPatch
) -> None:
    breaks.setenv("LEDGER_TOKEN", "very-secret-token")
    bug = ZeroDivisionError("oops at http://ann:s3cret@mlflow.example with very-secret-token")
    breaks.setattr("tidegate.cli.project.write_example", raising(bug))
    code, out, err = said(capsys, "init", "http://ann:s3cret@mlflow.example")
    assert (code, out) == (70, "")
    first, *_, words, last = err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert words == "ZeroDivisionError: oops at http://mlflow.example with ***"
    assert last.startswith("tidegate: internal error, please report it with the lines above (tidegate ")
    assert "s3cret" not in err and "very-secret-token" not in err


def test_a_long_detail_is_kept_for_debug(capsys: pytest.CaptureFixture[str], breaks: pytest.MonkeyPatch) -> None:
    error = OutsideError("the engine died", detail="\n".join(str(number) for number in range(100)))
    breaks.setattr("tidegate.cli.project.write_example", raising(error))
    _, _, err = said(capsys, "init")
    assert err == "tidegate: the engine died\n(more with --debug)\n"
    code, _, err = said(capsys, "--debug", "init")
    assert code == 4
    assert err.startswith("Traceback")
    assert "OutsideError: the engine died" in err


def test_no_matter_who_stops_reading_hears_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; from tidegate.cli import main; sys.exit(main(['schema']))"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, text=True, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (ExitCode.NO_READER, "")


FULL = "tidegate: no space left on device\n"
NOWHERE = "nowhere: found no such file; expected a readable YAML file, such as `tidegate init` writes\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "streams", "code", "told"),
    [
        ("schema", ">/dev/full", 4, FULL),
        ("--help", ">/dev/full", 4, FULL),
        ("--version", ">/dev/full", 4, FULL),
        ("schema", ">&-", 0, ""),
        ("plan nowhere", "2>&-", 2, ""),
        ("plan nowhere", "2>/dev/full", 2, ""),
        ("--nonsense", "2>/dev/full", 2, ""),
        ("plan nowhere", "<&- >&-", 2, NOWHERE),
        ("plan nowhere", "<&- >&- 2>&-", 2, ""),
    ],
)
def test_an_output_that_is_full_or_closed_changes_no_exit_code_but_to_4(
    tmp_path: Path, arguments: str, streams: str, code: int, told: str
) -> None:
    command = f"{sys.executable} -c 'import sys; from tidegate.cli import main; sys.exit(main())' {arguments} {streams}"
    ended = subprocess.run(command, shell=True, stderr=subprocess.PIPE, cwd=tmp_path, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, told)
