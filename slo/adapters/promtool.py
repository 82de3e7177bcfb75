"""Whether a query is PromQL, by Prometheus' own parser where promtool is installed."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import tempfile
from pathlib import Path

import promql_parser

from slo.model import WINDOW_PLACE
from tidegate.core.metrics import without_raw_strings

log = logging.getLogger(__name__)
_BEFORE = "could not parse expression: "
_WITHIN_SECONDS = 30


def refusal(query: str) -> str:
    """Return what Prometheus says against `query` in a rule; nothing where it is PromQL, or where nobody knows.

    The library reads nearly all queries, and is not Prometheus: what it does not read is never refused by its word.
    """
    # Rules divide: a bare range has no value at a time, and a last comment would swallow the bracket.
    expression = f"({WINDOW_PLACE.sub('1m', query)}) / 1"
    try:
        promql_parser.parse(without_raw_strings(expression))
    except ValueError as error:
        if (found := _by_promtool(expression)) is None:
            log.warning("%s: may be no PromQL (%s); install promtool, Prometheus' own tool, to know", query, error)
        return found or ""
    return ""


def _by_promtool(expression: str) -> str | None:
    """What promtool says, which is nothing of what is right; None where it is not installed or does not run."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return None
    rule = {"groups": [{"name": "asked", "rules": [{"record": "asked", "expr": expression}]}]}
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        path = Path(folder) / "rules.json"
        path.write_text(json.dumps(rule))
        command = [promtool, "check", "rules", "--lint=none", str(path)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return None
    if not ended.returncode:
        return ""
    _, told, reason = ended.stderr.partition(_BEFORE)
    return reason.strip().splitlines()[0] if told else None
