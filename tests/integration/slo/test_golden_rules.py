"""SLO specs over all features, each next to the rules that come of it; Prometheus accepts them all.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/integration/slo/test_golden_rules.py`, then read the diff.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.metrics.queries import read
from pydantic import Field

from slo.formats.read import MONTH
from slo.model import SloGroup
from slo.outputs import prometheus_rule, rule_file
from slo.rules import RuleGroup, RuleOptions, rules_for
from slo.windows import windows_by_period, windows_for
from tidegate.core.model import SpecModel
from tidegate.core.spec import load_spec
from tidegate.core.units import PrometheusDuration

CASES = sorted(path.parent for path in (Path(__file__).parents[2] / "golden" / "slo").glob("*/spec.yaml"))
REGENERATE = "TIDEGATE_REGENERATE" in os.environ
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Run(SpecModel):
    """A case's `run.yaml`: what was asked next to the spec."""

    default_period: PrometheusDuration = MONTH
    options: RuleOptions = Field(default_factory=RuleOptions)


def generated(case: Path) -> str:
    """As `tidegate slo generate` writes it: plain rules share a document, objects have one each."""
    run = load_spec(case / "run.yaml", Run) if (case / "run.yaml").exists() else Run()
    extra = case / "windows.yaml" if (case / "windows.yaml").exists() else None
    spec = case / "spec.yaml"
    documents = [
        (group, rules_of(group, run.options, extra))
        for group in read(spec.read_text(), file=spec.name, default_period=run.default_period)
    ]
    plain = [rules for group, groups in documents if not group.kubernetes for rules in groups]
    objects = [prometheus_rule(groups, group.kubernetes) for group, groups in documents if group.kubernetes]
    return "".join(([rule_file(plain)] if plain else []) + objects)


def rules_of(group: SloGroup, options: RuleOptions, extra: Path | None) -> list[RuleGroup]:
    known = windows_by_period(extra)
    return [
        rules
        for slo in group.slos
        for rules in rules_for(group.model_copy(update={"slos": (slo,)}), windows_for(slo.window, known), options)
    ]


def parsed(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, Loader=Loader))


@cache
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("needs Prometheus")
    return found


def test_there_are_cases_for_every_feature() -> None:
    assert len(CASES) >= 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_spec_gives_the_rules_next_to_it(case: Path) -> None:
    text = generated(case)
    if REGENERATE:
        assert "CI" not in os.environ, "what is expected is decided by a person"
        (case / "expected.yaml").write_text(text)
    assert parsed(text) == parsed((case / "expected.yaml").read_text())


def test_prometheus_accepts_them_all(tmp_path: Path) -> None:
    """Objects of the operator hold rule files in their `spec`."""
    files = []
    for case in CASES:
        for number, document in enumerate(parsed((case / "expected.yaml").read_text())):
            files.append(tmp_path / f"{case.name}-{number}.yaml")
            files[-1].write_text(yaml.safe_dump(document.get("spec", document)))
    run = subprocess.run(
        [promtool(), "check", "rules", "--lint-fatal", *files], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("SUCCESS") == len(files)
