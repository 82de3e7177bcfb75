"""Which trust file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.spec.trust import Trust, trust_at
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError


def test_without_a_file_nothing_is_named() -> None:
    assert trust_at(None, Path("/nowhere")).trust == Trust()


def test_a_file_next_to_the_spec_counts_only_when_it_is_named(tmp_path: Path) -> None:
    own = tmp_path / "trust.yaml"
    own.write_text("spec: {variables: [AWS_SECRET_ACCESS_KEY]}\n")
    with pytest.raises(UsageError, match=r"trust\.yaml: a trust file next to a spec does not count") as refused:
        trust_at(None, tmp_path)
    assert "by `--trust FILE` or TIDEGATE_TRUST" in (refused.value.hint or "")
    assert trust_at(own, tmp_path).trust.spec.variables == ("AWS_SECRET_ACCESS_KEY",)
    (tmp_path / "operator").mkdir()
    other = tmp_path / "operator/trust.yaml"
    other.write_text("kind: Trust\n")
    assert trust_at(other, tmp_path).trust == Trust()


def test_a_named_file_that_is_missing_is_an_error_also_next_to_a_spec_with_one(tmp_path: Path) -> None:
    (tmp_path / "trust.yaml").write_text("kind: Trust\n")
    with pytest.raises(SpecError, match=r"other\.yaml: found no such file"):
        trust_at(tmp_path / "other.yaml", tmp_path)


def test_a_misspelt_section_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "trust.yaml").write_text("kind: Trust\nledgr: {}\n")
    with pytest.raises(SpecError, match=r"trust\.yaml:2: ledgr: found an unknown key"):
        trust_at(tmp_path / "trust.yaml")
