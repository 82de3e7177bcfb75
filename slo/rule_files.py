"""SLOs of a file or a folder in, files of Prometheus rules out; all of them or none."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from slo.formats.read import read_all
from slo.model import SloGroup
from slo.outputs import prometheus_rule, rule_file
from slo.rules import RuleGroup, RuleOptions, rules_for
from slo.windows import windows_by_period, windows_for
from tidegate.core.errors import UsageError
from tidegate.core.files import Unreadable, read_text, text_of, write_atomically
from tidegate.core.spec import Problem, SpecError, unreadable
from tidegate.core.units import prometheus_duration

STREAM = Path("-")
"""stdin as a source, stdout as a target."""


Documents = Mapping[Path, Sequence[tuple[SloGroup, tuple[RuleGroup, ...]]]]
"""Each document's SLOs with their rules, by the file that they are from."""


def rule_documents(
    source: Path, options: RuleOptions, *, period: timedelta, windows_path: Path | None = None
) -> Documents:
    """Every document of every file in order, as rules.

    Args:
        source: a file, a folder or `STREAM`.
        options: what is asked of all rules.
        period: of SLOs that state none.
        windows_path: the folder of alert windows, in place of our own.

    Raises:
        SpecError: with every problem of every file.
        UsageError: there is nothing to read, or there are no windows for the period.
    """
    known = windows_by_period(windows_path)
    # Refused without windows even if every SLO says its own.
    period = windows_for(period, known).period
    texts = _texts(_paths(source))
    read = read_all({_name(path): text for path, text in texts.items()}, default_period=period)
    groups = {path: read[_name(path)] for path in texts}
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
    return {
        path: [(group, rules_for(group, known[group.slos[0].window], options)) for group in found]
        for path, found in groups.items()
    }


def _name(path: Path) -> str:
    return "stdin" if path == STREAM else str(path)


def _texts(paths: Sequence[Path]) -> dict[Path, str]:
    """What there is to read; all that cannot be read is told at once."""
    texts, problems = {}, []
    for path in paths:
        try:
            texts[path] = text_of(sys.stdin.buffer.read()) if path == STREAM else read_text(path)
        except Unreadable as error:
            problems.append(unreadable(_name(path), error, "a readable YAML file"))
    if problems:
        raise SpecError(problems)
    return texts


def _paths(source: Path) -> Sequence[Path]:
    if not source.is_dir():
        return [source]
    yaml = (path for path in source.rglob("*") if path.suffix.lower() in {".yml", ".yaml"} and not path.is_dir())
    found = sorted(yaml)
    if not found:
        raise UsageError(f"{source} has no .yml or .yaml file", hint="name a file or folder with SLOs")
    return found


def refuse_target(source: Path, target: Path) -> None:
    """Raise UsageError when the rules of `source` cannot go to `target`: each file of a folder becomes one of one."""
    if source != STREAM and not source.exists():
        raise UsageError(f"{source}: no such file or directory", hint="name a file or folder with SLOs")
    if not source.is_dir():
        if target.is_dir():
            raise UsageError(f"{target} is a directory and {source} is not", hint="name a file as OUTPUT")
        return
    if target == STREAM or (target.exists() and not target.is_dir()):
        raise UsageError(f"{source} is a directory and {target} is not", hint="name a directory as OUTPUT")
    if source.resolve() == target.resolve():
        raise UsageError(f"{target} is the input itself", hint="name another directory as OUTPUT")


def write_rules(documents: Documents, source: Path, target: Path) -> None:
    """Write the rules of `source` to `target`; nothing when one file has none.

    Raises:
        UsageError: no rules are left.
    """
    texts = {path: _text(path, found) for path, found in documents.items()}
    if target == STREAM:
        sys.stdout.write("".join(texts.values()))
        return
    folder = source.is_dir()
    write_atomically({target / path.relative_to(source) if folder else target: text for path, text in texts.items()})


def _text(path: Path, found: Sequence[tuple[SloGroup, tuple[RuleGroup, ...]]]) -> str:
    """One file: Prometheus reads only the first document of a rule file, so plain rules share one."""
    plain = [each for group, rules in found if not group.kubernetes for each in rules]
    objects = [prometheus_rule(rules, group.kubernetes) for group, rules in found if group.kubernetes and rules]
    if not plain and not objects:
        raise UsageError(f"{path}: no rules are left", hint="--disable-recordings or --disable-alerts leave none")
    return "".join([rule_file(plain)] * bool(plain) + objects)
