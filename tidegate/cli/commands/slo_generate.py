"""`tidegate slo generate`: SLO specs in, Prometheus rules out; all of them or none."""

from __future__ import annotations

import sys
from pathlib import Path

from slo.outputs import prometheus_rule, rule_file
from tidegate.cli.output import note
from tidegate.cli.slo_input import STDIN, Asked, Ruled, ruled
from tidegate.cli.whole_files import write_whole
from tidegate.core.errors import UsageError

STDOUT = Path("-")


def run(asked: Asked, target: Path, *, recordings: bool, alerts: bool) -> int:
    """Write the rules of every spec, once all of them are right."""
    _refuse_targets(asked.source, target)
    documents = ruled(asked, recordings=recordings, alerts=alerts)
    texts = {path: _text(path, found) for path, found in documents.items()}
    if target == STDOUT:
        sys.stdout.write("".join(texts.values()))
        return 0
    folder = asked.source.is_dir()
    write_whole({target / path.relative_to(asked.source) if folder else target: text for path, text in texts.items()})
    slos = sum(len(document.group.slos) for found in documents.values() for document in found)
    note(f"{target}: the rules of {slos} SLO{'s' * (slos != 1)}")
    return 0


def _refuse_targets(source: Path, target: Path) -> None:
    if source != STDIN and not source.exists():
        raise UsageError(f"{source}: no such file or directory")
    if not source.is_dir():
        if target.is_dir():
            raise UsageError(f"{target} is a directory and {source} is not", hint="name a file with --out")
        return
    if target == STDOUT or (target.exists() and not target.is_dir()):
        raise UsageError(f"{source} is a directory and {target} is not", hint="name a directory with --out")
    if source.resolve() == target.resolve():
        raise UsageError(f"{target} is the input itself", hint="name another directory with --out")


def _text(path: Path, found: list[Ruled]) -> str:
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
