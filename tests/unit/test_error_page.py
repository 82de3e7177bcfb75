"""The page of messages says what errors really say, and which exit code they really have."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from tidegate.core.errors import TidegateError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
MODULES = [f"{name}.errors" for name in ("pipelines", "rollouts", "engine_images", "registry", "tidegate.core")]


def subclasses(of: type[TidegateError]) -> Iterator[type[TidegateError]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def sections() -> Iterator[tuple[int, str]]:
    for section in PAGE.split("## Exit code ")[1:]:
        code, _, text = section.partition("\n")
        yield int(code), text


def test_every_error_stands_under_its_exit_code() -> None:
    for module in MODULES:
        importlib.import_module(module)
    codes = {each.__name__: int(each.exit_code) for each in subclasses(TidegateError)}
    shown = [(name, code) for code, text in sections() for name in re.findall(r": `(\w+)` \|$", text, re.MULTILINE)]
    known = [(name, code) for name, code in shown if name in codes]
    assert len(known) > 100
    assert [each for each in known if codes[each[0]] != each[1]] == []


def test_a_message_stands_there_with_what_to_do() -> None:
    (usage,) = (text for code, text in sections() if code == 2)
    assert "| the evidence is in a file or in Prometheus | give either --evidence or --prometheus |" in usage
    assert "| this needs &lt;top&gt;, which is not installed | run: &lt;install command&gt; |" in usage


def test_nothing_but_words_of_the_moment_is_no_message() -> None:
    assert "| &lt;problems&gt; |" not in PAGE


def test_every_message_has_a_next_step() -> None:
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
    assert len(rows) > 400
    assert [message for message, todo, _ in rows if not todo.strip()] == []
