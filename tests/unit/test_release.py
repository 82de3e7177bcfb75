"""What a release refuses, and what it says."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from release import PACKAGES, notes_of, ready_notes, refuse_different, refuse_incomplete
from tidegate.core.errors import Refused

CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- A gate on [tone](docs/gates.md).

## [0.1.0] - 2026-11-01

- The first.
"""
METADATA = """Metadata-Version: 2.4
Summary: Progressive delivery
License-Expression: Apache-2.0
Requires-Python: >=3.11
Classifier: Typing :: Typed
Provides-Extra: all

# tidegate
"""


def test_notes_are_what_the_changelog_says_of_the_version_alone() -> None:
    assert notes_of(CHANGELOG, "0.2.0") == "# tidegate 0.2.0\n\n### Added\n\n- A gate on [tone](docs/gates.md).\n"
    assert notes_of(CHANGELOG, "0.1.0") == "# tidegate 0.1.0\n\n- The first.\n"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("[0.2.0]", "[0.3.0]", r"has no version 0\.2\.0; turn \[Unreleased\] into"),
        (" - 2026-12-01", "", r"does not say when .*; found `no date`"),
        (" - 2026-12-01", " - soon", r"found `- soon`"),
        ("### Added\n\n- A gate on [tone](docs/gates.md).\n", "", r"says nothing of 0\.2\.0"),
        ("[Unreleased]\n", "[Unreleased]\n\n- Later.\n", r"has changes that are not released"),
    ],
)
def test_a_changelog_that_does_not_match_is_refused(before: str, after: str, why: str) -> None:
    assert before in CHANGELOG
    with pytest.raises(Refused, match=why):
        notes_of(CHANGELOG.replace(before, after), "0.2.0")


def test_a_version_is_released_once() -> None:
    assert ready_notes(changed="", tags=["v0.1.0"], changelog=CHANGELOG, version="0.2.0")
    with pytest.raises(Refused, match=r"v0\.2\.0 is tagged already"):
        ready_notes(changed="", tags=["v0.1.0", "v0.2.0"], changelog=CHANGELOG, version="0.2.0")


def test_two_builds_must_be_the_same() -> None:
    refuse_different({"a.whl": "1"}, {"a.whl": "1"})
    with pytest.raises(Refused, match=r"gives another a\.whl"):
        refuse_different({"a.whl": "1"}, {"a.whl": "2"})
    with pytest.raises(Refused, match=r"gives another b\.tar\.gz"):
        refuse_different({"a.whl": "1", "b.tar.gz": "1"}, {"a.whl": "1"})


def wheel(folder: Path, metadata: str, *, without: str = "") -> Path:
    path = folder / "tidegate-1-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr("tidegate-1.dist-info/METADATA", metadata)
        for package in PACKAGES:
            if package != without:
                archive.writestr(f"{package}/py.typed", "")
    return path


def test_a_wheel_is_whole(tmp_path: Path) -> None:
    refuse_incomplete(wheel(tmp_path, METADATA))
    with pytest.raises(Refused, match=r"lacks slo/py\.typed$"):
        refuse_incomplete(wheel(tmp_path, METADATA, without="slo"))
    with pytest.raises(Refused, match=r"lacks Requires-Python, the README$"):
        refuse_incomplete(wheel(tmp_path, re.sub("Requires.*\n|# tidegate\n", "", METADATA)))
