"""What `tidegate slo generate` and `validate` are given: specs from files, a folder or stdin, and the rules of them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from slo.discovery import spec_files
from slo.durations import parse_prometheus_duration, prometheus_duration
from slo.formats.parts import label_name
from slo.formats.read import read_all
from slo.model import Labels, SloGroup
from slo.rules import RuleGroup, RuleOptions, rules_for
from slo.windows import Windows, known_windows, windows_among
from tidegate.core.errors import UsageError
from tidegate.core.spec import Problem, SpecError, unreadable
from tidegate.core.text_files import Unreadable, read_text, text_of

STDIN = Path("-")


@dataclass(frozen=True)
class Asked:
    """What both commands are told on the command line."""

    source: Path
    extra_labels: tuple[str, ...]
    period: str
    windows_path: Path | None
    exclude: str | None
    include: str | None


@dataclass(frozen=True)
class Ruled:
    """One document's SLOs with their rules."""

    group: SloGroup
    rules: tuple[RuleGroup, ...]


def ruled(asked: Asked, *, recordings: bool = True, alerts: bool = True) -> dict[Path, list[Ruled]]:
    """Every document of every file in order, as rules.

    Raises:
        SpecError: with every problem of every file.
        UsageError: when an option is wrong, or there is nothing to read.
    """
    options = RuleOptions(
        extra_labels=_labels(asked.extra_labels), disable_recordings=not recordings, disable_alerts=not alerts
    )
    length = _period(asked.period)
    known = known_windows(asked.windows_path)
    # Refused without windows even if every SLO says its own.
    period = windows_among(known, length).period
    texts = _texts(asked)
    read = read_all({_name(path): text for path, text in texts.items()}, default_period=period)
    groups = {path: read[_name(path)] for path in texts}
    _refuse_periods_without_windows(groups, known)
    return {
        path: [Ruled(group, rules_for(group, known[group.slos[0].window], options)) for group in found]
        for path, found in groups.items()
    }


def _name(path: Path) -> str:
    return "stdin" if path == STDIN else str(path)


def _labels(asked: tuple[str, ...]) -> Labels:
    labels = {}
    for text in asked:
        key, _, value = text.partition("=")
        try:
            label_name(key)
        except ValueError as error:
            raise UsageError(f"--extra-labels: found {text!r}; expected key=value, with {error}") from error
        if not value:
            raise UsageError(f"--extra-labels: found {text!r}; expected key=value")
        labels[key] = value
    return labels


def _period(asked: str) -> timedelta:
    try:
        return parse_prometheus_duration(asked)
    except ValueError as error:
        raise UsageError(f"--default-slo-period: found {asked!r}; expected {error}") from error


def _texts(asked: Asked) -> dict[Path, str]:
    """What there is to read; all that cannot be read is told at once."""
    texts, problems = {}, []
    for path in _paths(asked):
        try:
            texts[path] = text_of(sys.stdin.buffer.read()) if path == STDIN else read_text(path)
        except Unreadable as error:
            problems.append(unreadable(_name(path), error, "a readable YAML file"))
    if problems:
        raise SpecError(problems)
    return texts


def _paths(asked: Asked) -> list[Path]:
    include, exclude = _regex("--fs-include", asked.include), _regex("--fs-exclude", asked.exclude)
    if not asked.source.is_dir():
        return [asked.source]
    found = spec_files(asked.source, include=include, exclude=exclude)
    if not found:
        raise UsageError(
            f"{asked.source} has no .yml or .yaml file", hint="or --fs-include and --fs-exclude leave none"
        )
    return found


def _regex(option: str, pattern: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern else None
    except re.error as error:
        raise UsageError(f"{option}: found {pattern!r}; expected a regular expression ({error})") from error


def _refuse_periods_without_windows(groups: dict[Path, list[SloGroup]], known: dict[timedelta, Windows]) -> None:
    periods = ", ".join(prometheus_duration(period) for period in sorted(known))
    problems = [
        Problem(_name(path), 1, "", f"{slo.id} over {prometheus_duration(slo.window)}", f"a period of {periods}")
        for path, found in groups.items()
        for group in found
        for slo in group.slos
        if slo.window not in known
    ]
    if problems:
        raise SpecError(problems)
