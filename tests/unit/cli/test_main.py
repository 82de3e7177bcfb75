"""The command line's manners: one line on stderr that says what to do, and the exit code that was promised."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.spec import SpecError

WRONG = """\
apiVersion: tidegate/v1
kind: Pipeline
metadata: {name: support-llm}
model: {name: support-llm}
engine: {vllm: {version: 0.32.0}}
gates: {}
stages: [{canary: {weights: [50, 5]}}]
regions: {waves: [[eu-west-1]], bake: soon}
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    (tmp_path / "delivery.yaml").write_text(WRONG)
    return tmp_path / "delivery.yaml"


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
    ("arguments", "line"),
    [
        (["frobnicate"], "tidegate: No such command 'frobnicate'; see `tidegate --help`"),
        (["delivr"], "tidegate: No such command 'delivr'. Did you mean 'deliver'?; see `tidegate --help`"),
        (
            ["model", "registers"],
            "tidegate: No such command 'registers'. Did you mean 'register'?; see `tidegate model --help`",
        ),
        (["model"], "tidegate: Missing command; see `tidegate model --help`"),
        (["plan", "--nope"], "tidegate: No such option: --nope; see `tidegate plan --help`"),
        (["model", "list"], "tidegate: Missing argument 'name'; see `tidegate model list --help`"),
        (["model", "alias", "m"], "tidegate: Missing argument 'version'; see `tidegate model alias --help`"),
        (
            ["report", "--last", "0"],
            "tidegate: Invalid value for '--last': expected greater than or equal to 1; see `tidegate report --help`",
        ),
        (
            ["deliver", "--output", "yaml"],
            "tidegate: Invalid value for '--output': 'yaml' is not one of 'text', 'json'; "
            "see `tidegate deliver --help`",
        ),
        (["schema", "nope"], "tidegate: no schema is called `nope`; known: delivery, trust, gates, batch, answer"),
        (
            ["model", "alias", "m", "1", "production"],
            "tidegate: no alias is called `production`; known: champion, challenger, previous",
        ),
    ],
)
def test_a_usage_error_is_one_line_that_says_where_to_look(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    code, out, err = said(capsys, *arguments)
    assert (code, out, err) == (2, "", line + "\n")


def test_a_spec_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = said(capsys, "plan", str(tmp_path / "nowhere.yaml"))
    assert (code, out) == (2, "")
    assert (
        err == f"tidegate: {tmp_path}/nowhere.yaml:1: found no such file or directory; expected a readable YAML file\n"
    )


@pytest.mark.parametrize("command", ["plan", "status", "report"])
def test_every_problem_of_a_spec_is_a_line_that_editors_can_jump_to(
    capsys: pytest.CaptureFixture[str], wrong: Path, command: str
) -> None:
    code, out, err = said(capsys, command, str(wrong))
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["kind", "stages[0].canary.weights", "regions.bake"]
    assert all(line.startswith(f"{wrong}:") for line in lines)


def test_debug_shows_the_whole_error(capsys: pytest.CaptureFixture[str], wrong: Path) -> None:
    with pytest.raises(SpecError):
        main(["plan", str(wrong), "--debug"])
    assert capsys.readouterr().err == ""


def test_something_outside_has_its_own_exit_code(
    capsys: pytest.CaptureFixture[str], breaks: pytest.MonkeyPatch
) -> None:
    error = OutsideError("Prometheus is not there", hint="run `tidegate setup`", detail="connection refused")
    breaks.setattr("tidegate.cli.commands.init.run", raising(error))
    assert said(capsys, "init") == (
        4,
        "",
        "tidegate: Prometheus is not there; run `tidegate setup`\nconnection refused\n",
    )


def test_a_long_detail_is_kept_for_debug(capsys: pytest.CaptureFixture[str], breaks: pytest.MonkeyPatch) -> None:
    error = OutsideError("the engine died", detail="\n".join(str(number) for number in range(100)))
    breaks.setattr("tidegate.cli.commands.init.run", raising(error))
    _, _, err = said(capsys, "init")
    assert err == "tidegate: the engine died\n(more with --debug)\n"
    with pytest.raises(TidegateError) as caught:
        main(["--debug", "init"])
    assert caught.value is error


def test_ctrl_c_is_one_line_and_no_traceback(capsys: pytest.CaptureFixture[str], breaks: pytest.MonkeyPatch) -> None:
    breaks.setattr("tidegate.cli.commands.init.run", raising(KeyboardInterrupt()))
    assert said(capsys, "init") == (1, "", "tidegate: stopped\n")


def test_a_bug_keeps_its_traceback(breaks: pytest.MonkeyPatch) -> None:
    breaks.setattr("tidegate.cli.commands.init.run", raising(ZeroDivisionError("oops")))
    with pytest.raises(ZeroDivisionError):
        main(["init"])


@pytest.mark.parametrize("code", [0, 1, 3])
def test_what_a_command_returns_is_the_exit_code(breaks: pytest.MonkeyPatch, code: int) -> None:
    breaks.setattr("tidegate.cli.commands.init.run", lambda folder: code)
    assert main(["init"]) == code
