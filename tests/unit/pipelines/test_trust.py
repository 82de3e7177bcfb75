"""Which trust file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.spec.trust import Trust, trust_at
from tidegate.core.spec import SpecError


def test_without_a_file_nothing_is_named() -> None:
    assert trust_at(None, Path("/nowhere")).trust == Trust()


def test_the_file_next_to_the_spec_is_read(tmp_path: Path) -> None:
    (tmp_path / "trust.yaml").write_text("apiVersion: tidegate/v1\nkind: Trust\n")
    assert trust_at(None, tmp_path).folder == tmp_path


def test_a_named_file_that_is_missing_is_an_error_also_next_to_a_spec_with_one(tmp_path: Path) -> None:
    (tmp_path / "trust.yaml").write_text("kind: Trust\n")
    with pytest.raises(SpecError, match=r"other\.yaml: found no such file"):
        trust_at(tmp_path / "other.yaml", tmp_path)


def test_a_misspelt_section_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "trust.yaml").write_text("kind: Trust\nledgr: {}\n")
    with pytest.raises(SpecError, match=r"trust\.yaml:2: ledgr: found an unknown key"):
        trust_at(None, tmp_path)
