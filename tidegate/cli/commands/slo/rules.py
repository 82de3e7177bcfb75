"""`tidegate slo generate` and `validate`: SLOs in, Prometheus rules out; all files or none."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from slo.formats.fields import label_name
from slo.formats.read import read_all, spec_files
from slo.model import Labels, SloGroup
from slo.outputs import prometheus_rule, rule_file
from slo.rules import RuleGroup, RuleOptions, rules_for
from slo.windows import AlertWindows, windows_among, windows_by_period
from tidegate.cli.output import Output, print_data
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.files import Unreadable, read_text, text_of, write_atomically
from tidegate.core.process import note
from tidegate.core.spec import Problem, SpecError, unreadable
from tidegate.core.units import parse_prometheus_duration, prometheus_duration

STDIN = Path("-")


@dataclass(frozen=True)
class SloInput:
    """What both commands are told on the command line."""

    source: Path
    extra_labels: tuple[str, ...]
    period: str
    windows_path: Path | None
    exclude: str | None
    include: str | None
    duplicates: bool = False
    """One SLO may be in several places."""


@dataclass(frozen=True)
class RuleDocument:
    """One document's SLOs with their rules."""

    group: SloGroup
    rules: tuple[RuleGroup, ...]


def rule_documents(asked: SloInput, *, recordings: bool = True, alerts: bool = True) -> dict[Path, list[RuleDocument]]:
    """Every document of every file in order, as rules.

    Raises:
        SpecError: with every problem of every file.
        UsageError: when an option is wrong, or there is nothing to read.
    """
    options = RuleOptions(
        extra_labels=_rule_labels(asked.extra_labels), disable_recordings=not recordings, disable_alerts=not alerts
    )
    length = _period(asked.period)
    known = windows_by_period(asked.windows_path)
    # Refused without windows even if every SLO says its own.
    period = windows_among(known, length).period
    texts = _texts(asked)
    read = read_all(
        {_name(path): text for path, text in texts.items()}, default_period=period, duplicates=asked.duplicates
    )
    groups = {path: read[_name(path)] for path in texts}
    _refuse_periods_without_windows(groups, known)
    return {
        path: [RuleDocument(group, rules_for(group, known[group.slos[0].window], options)) for group in found]
        for path, found in groups.items()
    }


def _name(path: Path) -> str:
    return "stdin" if path == STDIN else str(path)


def _rule_labels(asked: tuple[str, ...]) -> Labels:
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


def _texts(asked: SloInput) -> dict[Path, str]:
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


def _paths(asked: SloInput) -> list[Path]:
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


def _refuse_periods_without_windows(groups: dict[Path, list[SloGroup]], known: dict[timedelta, AlertWindows]) -> None:
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


STDOUT = Path("-")


def generate_rules(asked: SloInput, target: Path, *, recordings: bool, alerts: bool) -> int:
    """Write the rules of every spec, once all of them are right."""
    _refuse_targets(asked.source, target)
    documents = rule_documents(asked, recordings=recordings, alerts=alerts)
    texts = {path: _text(path, found) for path, found in documents.items()}
    if target == STDOUT:
        sys.stdout.write("".join(texts.values()))
        return 0
    folder = asked.source.is_dir()
    write_atomically(
        {target / path.relative_to(asked.source) if folder else target: text for path, text in texts.items()}
    )
    slos = sum(len(document.group.slos) for found in documents.values() for document in found)
    note(f"{target}: the rules of {slos} SLO{'s' * (slos != 1)}")
    return 0


def _refuse_targets(source: Path, target: Path) -> None:
    if source != STDIN and not source.exists():
        raise UsageError(f"{source}: no such file or directory", hint="name the SLO spec with --input")
    if not source.is_dir():
        if target.is_dir():
            raise UsageError(f"{target} is a directory and {source} is not", hint="name a file with --out")
        return
    if target == STDOUT or (target.exists() and not target.is_dir()):
        raise UsageError(f"{source} is a directory and {target} is not", hint="name a directory with --out")
    if source.resolve() == target.resolve():
        raise UsageError(f"{target} is the input itself", hint="name another directory with --out")


def _text(path: Path, found: list[RuleDocument]) -> str:
    """One file: Prometheus reads only the first document of a rule file, so plain rules share one."""
    documents = [document for document in found if document.rules]
    if not documents:
        raise UsageError(f"{path}: no rules are left", hint="--disable-recordings or --disable-alerts leave none")
    plain = [group for document in documents if not document.group.kubernetes for group in document.rules]
    objects = [
        prometheus_rule(document.rules, document.group.kubernetes)
        for document in documents
        if document.group.kubernetes
    ]
    return "".join([rule_file(plain)] * bool(plain) + objects)


def validate_slos(asked: SloInput, *, output: Output) -> int:
    """Tell what the files promise, or all that is wrong with them."""
    try:
        documents = rule_documents(asked)
    except SpecError as error:
        if not output.is_data:
            raise
        print_data({"valid": False, "files": [], "problems": [asdict(problem) for problem in error.problems]}, output)
        return ExitCode.USAGE
    files = {path: [slo for document in found for slo in document.group.slos] for path, found in documents.items()}
    if output.is_data:
        listed = [{"file": str(path), "slos": [slo.id for slo in slos]} for path, slos in files.items()]
        print_data({"valid": True, "files": listed, "problems": []}, output)
        return ExitCode.DELIVERED
    for path, slos in files.items():
        print(f"{path}: {', '.join(slo.id for slo in slos)}")
    return ExitCode.DELIVERED
