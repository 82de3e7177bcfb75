"""Which windows there are: the built-in ones, or those of a person's own files instead."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path

from slo.durations import prometheus_duration
from slo.windows.model import Windows
from slo.windows.spec import AlertWindowsSpec
from tidegate.core.errors import UsageError
from tidegate.core.spec import Problem, SpecError, load_spec, parse_spec

Known = dict[timedelta, Windows]

_SUFFIXES = {".yaml", ".yml"}


def windows_for(period: timedelta, extra: Path | None = None) -> Windows:
    """The windows of an SLO over `period`; `extra`, a file or folder, stands in place of the built-in ones.

    Raises:
        UsageError: when there are none for this period; it names the periods that have some.
        SpecError: with every problem of the files in `extra`.
    """
    return windows_among(known_windows(extra), period)


def windows_among(known: Known, period: timedelta) -> Windows:
    """As `windows_for`, of windows that were read already."""
    if period in known:
        return known[period]
    there_are = ", ".join(prometheus_duration(length) for length in sorted(known)) or "none"
    raise UsageError(
        f"no alert windows for an SLO period of {prometheus_duration(period)}; there are windows for: {there_are}",
        hint="describe yours in a file of kind AlertWindows and name it with --slo-period-windows-path",
    )


def known_windows(extra: Path | None = None) -> Known:
    """Every period that has windows.

    Raises:
        SpecError: with every problem of the files in `extra`.
    """
    return _built_in() if extra is None else _collected(_loaded(extra))


@cache
def _built_in() -> Known:
    texts = sorted(files("slo.windows").joinpath("periods").iterdir(), key=lambda file: file.name)
    specs = [(file.name, parse_spec(file.read_text("utf-8"), AlertWindowsSpec, file=file.name)) for file in texts]
    return _collected(specs)


def _loaded(path: Path) -> list[tuple[str, AlertWindowsSpec]]:
    """Every file is read before any of them is refused."""
    problems, specs = [], []
    for file in _files_of(path):
        try:
            specs.append((str(file), load_spec(file, AlertWindowsSpec)))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return specs


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise SpecError([Problem(str(path), 1, "", "no YAML file", "a folder with files of kind AlertWindows")])
    return found


def _collected(specs: Iterable[tuple[str, AlertWindowsSpec]]) -> Known:
    known: Known = {}
    named: dict[timedelta, str] = {}
    problems = []
    for file, spec in specs:
        windows = spec.windows()
        if first := named.get(windows.period):
            length = prometheus_duration(windows.period)
            problems.append(Problem(file, 1, "spec.sloPeriod", length, f"a period that {first} has no windows for"))
            continue
        named[windows.period], known[windows.period] = file, windows
    if problems:
        raise SpecError(problems)
    return known
