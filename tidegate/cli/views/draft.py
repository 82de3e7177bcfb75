"""A draft of a spec as a person reads what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from pipelines.draft.model import DraftNote, DraftNoteKind
from pipelines.draft.next_steps import NextStep

_TITLES = {
    DraftNoteKind.FOUND: "Found, and taken over",
    DraftNoteKind.DECIDE: "Yours to decide (TODO in the file)",
    DraftNoteKind.UNSUPPORTED: "There today, and not in what tidegate brings",
    DraftNoteKind.DIFFERS: "Not the same in every region",
    DraftNoteKind.UNREAD: "Could not be read",
}


def draft_text_lines(notes: Sequence[DraftNote], steps: Sequence[NextStep]) -> Text:
    """Kind after kind, then what to do next."""
    return Text("\n").join([*_notes(notes), Text("\nNext", style="bold"), *_steps(steps)])


def _notes(notes: Sequence[DraftNote]) -> Iterator[Text]:
    for kind, title in _TITLES.items():
        of_kind = [each for each in notes if each.kind is kind]
        if of_kind:
            yield Text(f"\n{title}", style="bold")
        for each in of_kind:
            yield Text.assemble("  ", (each.subject, "bold"), f": {each.what}")
            if each.action:
                yield Text(f"      {each.action}", style="dim")


def _steps(steps: Sequence[NextStep]) -> Iterator[Text]:
    for number, each in enumerate(steps, start=1):
        yield Text(f"  {number}. {each.what}")
        if each.command:
            yield Text(f"       {each.command}", style="cyan")
