"""Which of the installed distributions go into an image: those that are needed, and what they require. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine_images.errors import BrokenImage

STEPS = Path(__file__).parent / "steps.toml"


@dataclass(frozen=True)
class Needs:
    """A list such as `steps.toml`."""

    needs: tuple[str, ...]
    without: frozenset[str]
    leaves: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Needs:
        """The list in a file of ours."""
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(said["needs"]), frozenset(said["without"]), tuple(said["leaves"]))


def missing(what: str) -> BrokenImage:
    """The refusal of a folder into which somebody forgot to install something."""
    return BrokenImage(f"{what} is not in that folder", hint="`pip install --target FOLDER tidegate` puts it there")


def packed(needs: Needs, requires: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The names of the distributions to pack; `requires` is what each installed one says that it needs.

    Raises:
        BrokenImage: one of them is not installed.
    """
    found: set[str] = set()
    left = [(name, "steps.toml") for name in needs.needs]
    while left:
        name, wanted_by = left.pop()
        if name in found or name in needs.without:
            continue
        if name not in requires:
            raise missing(f"{name}, which {wanted_by} needs,")
        found.add(name)
        left += [(canonicalize_name(each.name), name) for each in map(Requirement, requires[name]) if _applies(each)]
    return frozenset(found)


def _applies(requirement: Requirement) -> bool:
    """Here, and without any extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})
