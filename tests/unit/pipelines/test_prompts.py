"""Prompts come from files that people write; what is wrong with them is told before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.world import GOLDEN, a_spec

from pipelines.spec.policy import golden_set, user_prompts
from tidegate.core.spec import SpecError

USERS = "traffic: {requests_per_second: 10, prompts: users.txt}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "golden.jsonl").write_text(GOLDEN)
    return tmp_path


def test_users_ask_one_prompt_a_line(folder: Path) -> None:
    (folder / "users.txt").write_text("Where is my order?\n\n  Can I return it?  \n", encoding="utf-8")
    assert user_prompts(a_spec(traffic=USERS), folder) == ("Where is my order?", "Can I return it?")


@pytest.mark.parametrize("traffic", ["", "traffic: {requests_per_second: 10}"])
def test_without_a_file_of_their_own_the_golden_set_is_what_pairs_ask(folder: Path, traffic: str) -> None:
    prompts = user_prompts(a_spec(traffic=traffic), folder)
    assert (len(prompts), prompts[0]) == (12, "What is 1 plus 1?")


def test_without_an_offline_stage_nobody_reads_a_golden_set(tmp_path: Path) -> None:
    spec = a_spec(offline="", traffic=USERS)
    assert golden_set(spec, tmp_path) == ()


def test_a_file_lies_next_to_the_spec_that_names_it(folder: Path) -> None:
    (folder / "shared").mkdir()
    (folder / "deliveries").mkdir()
    (folder / "shared" / "users.txt").write_text("Hello?")
    spec = a_spec(traffic="traffic: {requests_per_second: 10, prompts: ../shared/users.txt}")
    assert user_prompts(spec, folder / "deliveries") == ("Hello?",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, " found no such file; expected one prompt a line"),
        (b"\xff\xfe\xff", "1: found UTF-16 text; expected one prompt a line in UTF-8"),
        (b"What?\n\xe9t\xe9", "2: found bytes that are no UTF-8 (0xe9); expected one prompt a line in UTF-8"),
        (b"\n  \n", "1: found no prompts; expected one prompt a line"),
    ],
)
def test_a_file_without_prompts_is_one_clear_line(folder: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (folder / "users.txt").write_bytes(content)
    with pytest.raises(SpecError) as caught:
        user_prompts(a_spec(traffic=USERS), folder)
    assert str(caught.value) == f"{folder / 'users.txt'}:{said}"


def test_a_golden_set_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"golden.jsonl: found no such file; expected a JSON object per line"):
        golden_set(a_spec(), tmp_path)
