"""Words of others name nobody, link nowhere and load nothing, wherever Markdown is shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.text import table_cell

SPAN = re.compile(r"(?s)\\.|(`+)(?!`).*?(?<!`)\1(?!`)")


def outside_code(markdown: str, *, escaped: bool) -> str:
    """What a reader of Markdown looks at for more than text; `escaped`: with the characters that are just that."""
    return SPAN.sub(lambda found: found[0][1] if escaped and not found[1] else " ", markdown)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("ping @acme/sre now", "ping `@acme/sre` now"),
        ("see https://evil.example/login.", "see `https://evil.example/login.`"),
        ("www.evil.example", "`www.evil.example`"),
        ("as in #12 and acme/app#7, !3, GH-4", "as in `#12` and `acme/app#7,` `!3,` `GH-4`"),
        ("write to ann@example.org", "write to `ann@example.org`"),
        ("@a`b", "`` @a`b ``"),
        ("<img src=https://x.example/b> [Approve](y)", "\\<img `src=https://x.example/b>` \\[Approve\\](y)"),
        ("canary@eu-west-1/25: p95 104 ms | was 98 ms", "canary@eu-west-1/25: p95 104 ms \\| was 98 ms"),
        ("a\n/close\x1b[2J", "a /close\\[2J"),
    ],
)
def test_what_would_link_or_call_somebody_is_code_and_markup_is_text(said: str, told: str) -> None:
    assert table_cell(said) == told


@given(st.text(alphabet="@#!:/.|<>`*_[]()ahtpsw17 \n\\"))
def test_nothing_lively_is_left_outside_code(text: str) -> None:
    markdown = table_cell(text)
    words = outside_code(markdown, escaped=True)
    assert "://" not in words and not re.search(r"(?<!\w)@\w|#\d", words)
    assert not re.search(r"[<>|\[\]]", outside_code(markdown, escaped=False))
