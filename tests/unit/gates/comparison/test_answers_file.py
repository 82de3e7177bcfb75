"""The file of answers: written as they come, whole after a kill, and of two endpoints alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gates.adapters.answers_file import AnswersFile
from gates.comparison import AnsweredPair, Endpoint
from gates.model import EngineReply
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError

STABLE, CANARY = (Endpoint(url=f"http://h:{port}/v1", model="m") for port in (1, 2))
# A character that `str.splitlines` takes for the end of a line.
REPLY = EngineReply(text="one\u2028two\nthree", finish_reason="stop", output_tokens=3, ttft_seconds=0.1)


def a_pair(number: int) -> AnsweredPair:
    return AnsweredPair(time=float(number), prompt="p", stable=REPLY, canary=None, canary_error="too slow")


def written(path: Path, count: int) -> Path:
    with AnswersFile.opened(path) as file:
        file.begin(STABLE, CANARY)
        for number in range(count):
            file.add(a_pair(number))
    return path


def test_what_was_written_is_read_and_more_is_added(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", 2)
    with AnswersFile.opened(path) as file:
        assert file.pairs == (a_pair(0), a_pair(1))
        file.begin(STABLE, CANARY)
        file.add(a_pair(2))
    with AnswersFile.opened(path) as file:
        assert len(file.pairs) == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it holds what users may have asked"


def test_a_line_that_was_torn_is_taken_away(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", 2)
    path.write_bytes(path.read_bytes()[:-20])
    with AnswersFile.opened(path) as file:
        assert file.pairs == (a_pair(0),)
        file.add(a_pair(1))
    with AnswersFile.opened(path) as file:
        assert file.pairs == (a_pair(0), a_pair(1))


def test_answers_of_others_are_refused(tmp_path: Path) -> None:
    with AnswersFile.opened(written(tmp_path / "a.jsonl", 1)) as file, pytest.raises(UsageError) as caught:
        file.begin(STABLE, Endpoint(url="http://h:2/v1", model="other"))
    assert "has answers of m at http://h:2/v1, and other at http://h:2/v1 is asked now" in caught.value.message


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", 0)
    with (
        AnswersFile.opened(path),
        pytest.raises(UsageError, match="another comparison writes it"),
        AnswersFile.opened(path),
    ):
        pass


@pytest.mark.parametrize(("text", "found"), [("{}\n", "an object without the key kind"), ("x\n", "no JSON")])
def test_a_file_of_something_else_is_refused_with_its_line(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(SpecError) as caught, AnswersFile.opened(path):
        pass
    assert caught.value.problems[0].line == 1
    assert found in caught.value.problems[0].found
    assert path.read_text() == text
