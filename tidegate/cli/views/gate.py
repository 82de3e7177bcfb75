"""A judgement for the one who asked: on the terminal, in a pipe or in a file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from gates.reports.check_report import EXIT_CODES, REPORTS, CheckReport, as_text
from tidegate.core.files import write_atomically
from tidegate.core.process import note


def print_report(judgement: CheckReport, form: str, target: Path | None) -> int:
    """Tell it in one of the forms of `REPORTS`; returns what the worst gate means."""
    on_terminal = form == "text" and target is None and sys.stdout.isatty()
    text = as_text(judgement, shutil.get_terminal_size().columns) if on_terminal else REPORTS[form](judgement)
    if target is None:
        print(text, end="")
    else:
        write_atomically({target: text})
        note(f"{judgement.outcome}: {target}")
    return EXIT_CODES[judgement.outcome]
