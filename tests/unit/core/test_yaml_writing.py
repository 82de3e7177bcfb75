"""What is written is read back as the same, by any reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.yaml_text import all_composed, content_of, yaml_text

FILES = sorted(path for path in (Path(__file__).parents[2] / "golden").rglob("*.yaml"))
"""Rules, manifests and workflows, and the specs that they are made of."""


@given(st.from_regex(r"[-+.0-9a-zA-Z_:]{1,8}", fullmatch=True))
def test_no_text_is_another_value_for_any_reader(text: str) -> None:
    (root,) = all_composed(yaml_text({"said": text}))
    found = content_of(root)
    assert isinstance(found, dict) and (found, type(found["said"])) == ({"said": text}, str)


@pytest.mark.parametrize("path", FILES[::4], ids=lambda path: "/".join(path.parts[-3:]))
def test_a_golden_document_is_read_back_from_what_is_written(path: Path) -> None:
    for root in all_composed(path.read_text()):
        document = content_of(root)
        assert isinstance(document, dict)
        (again,) = all_composed(yaml_text(document))
        assert content_of(again) == document


def test_reading_what_is_merged_leaves_every_key_where_it_was() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {<<: *base, c: 3}\nall: {<<: *more, a: 4}\n"
    (root,) = all_composed(text)
    before = [pair[0].start_mark.line for _, value in root.value for pair in value.value]
    assert content_of(root) == {
        "base": {"a": 1, "b": 2},
        "more": {"a": 1, "b": 2, "c": 3},
        "all": {"a": 4, "b": 2, "c": 3},
    }
    assert [pair[0].start_mark.line for _, value in root.value for pair in value.value] == before
