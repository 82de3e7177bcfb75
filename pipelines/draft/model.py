"""A draft of a spec: the document, a comment for each value, and notes for the person who asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from tidegate.core.model import Value

Place = tuple[str, ...]
"""Keys from the top of the document."""


class DraftNoteKind(StrEnum):
    """What a note is about."""

    FOUND = "found"
    """Read in a cluster, and taken over."""
    DECIDE = "decide"
    """No cluster says it: a person has to look at the value that stands there."""
    UNSUPPORTED = "unsupported"
    """There today, and not in what tidegate brings."""
    """Not the same in every region."""
    UNREAD = "unread"
    """Could not be read."""


class DraftNote(Value):
    """One thing worth knowing before the draft is used."""

    kind: DraftNoteKind
    subject: str
    """The object, or the key of the spec."""
    what: str
    action: str = ""
    """What to do: a command, or a page of the docs."""

    @property
    def key(self) -> str:
        """What tells it from others."""
        return f"{self.kind} {self.subject} {self.what}"


class Draft(Value):
    """A delivery as far as clusters tell it."""

    document: dict[str, Any]
    comments: dict[Place, tuple[str, ...]]
    """Lines above a key."""
    after: dict[Place, tuple[str, ...]]
    """Lines below the value of a key: what may be switched on later."""
    notes: tuple[DraftNote, ...]


class Sketch:
    """A draft that is being written."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self.comments: dict[Place, list[str]] = {}
        self.after: dict[Place, list[str]] = {}
        self.notes: list[DraftNote] = []

    def put(self, place: str, value: object, *comments: str) -> None:
        """Set `place`, such as `fleet.pod.cpu`; keys stand in the order in which they are put."""
        *above, last = keys = tuple(place.split("."))
        here = self.document
        for key in above:
            here = here.setdefault(key, {})
        here[last] = value
        if comments:
            self.comments.setdefault(keys, []).extend(comments)

    def found(self, place: str, value: object, source: str) -> None:
        """A value of a cluster's."""
        self.put(place, value, f"from {source}")
        self.note(DraftNoteKind.FOUND, place, f"{_short(value)}, from {source}")

    def decide(self, place: str, value: object, why: str, action: str = "") -> None:
        """A value that a person has to look at; `why` says what it stands for and why it is what it is."""
        self.put(place, value, f"TODO: {why}")
        self.note(DraftNoteKind.DECIDE, place, why, action)

    def note(self, kind: DraftNoteKind, subject: str, what: str, action: str = "") -> None:
        """Say something; the same is said once."""
        note = DraftNote(kind=kind, subject=subject, what=what, action=action)
        if note not in self.notes:
            self.notes.append(note)

    def unsupported(self, subject: str, what: str, action: str) -> None:
        """Something that is there today, and is not in what tidegate brings."""
        self.note(DraftNoteKind.UNSUPPORTED, subject, what, action)

    def below(self, place: str, lines: Iterable[str]) -> None:
        """Lines that may be switched on later."""
        self.after.setdefault(tuple(place.split(".")), []).extend(lines)

    def finished(self) -> Draft:
        """What came of it."""
        return Draft(
            document=self.document,
            comments={place: tuple(lines) for place, lines in self.comments.items()},
            after={place: tuple(lines) for place, lines in self.after.items()},
            notes=tuple(self.notes),
        )


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
