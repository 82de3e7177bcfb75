"""A real Prometheus on a free port, and rules judged by it: series in, values of expressions and alerts out."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from fakes.services.sockets import free_address, running

from slo.outputs import rule_file
from slo.rules import RuleGroup


def written_down(home: Path, lines: Iterable[str]) -> Path:
    """The folder of a database that holds `lines` of an exposition with times."""
    (home / "series.txt").write_text("\n".join([*lines, "# EOF", ""]))
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(home / "series.txt"), str(home / "data")]
    subprocess.run(make, check=True, capture_output=True)
    return home / "data"


@contextmanager
def prometheus(
    home: Path,
    config: Mapping[str, object] | None = None,
    *,
    web: Mapping[str, object] | None = None,
) -> Iterator[str]:
    """Its address, once it answers; data are those in `home / "data"`. `web` says who may ask, and over TLS."""
    (home / "prometheus.yml").write_text(json.dumps(config or {}))
    address = free_address()
    command = [
        "prometheus",
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    scheme = "https" if web and "tls_server_config" in web else "http"
    if web:
        (home / "web.yml").write_text(json.dumps(web))
        command.append(f"--web.config.file={home / 'web.yml'}")
    with running(command, ready=f"{scheme}://{address}/-/ready", log=home / "log"):
        yield f"{scheme}://{address}"


def asked(url: str, query: str, at: float | None = None) -> Sequence[Mapping[str, Any]]:
    """The samples of an instant query."""
    parameters = urllib.parse.urlencode({"query": query} | ({"time": at} if at else {}))
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=60) as answer:
        samples: Sequence[Mapping[str, Any]] = json.load(answer)["data"]["result"]
    return samples


Test = dict[str, object]
Series = Mapping[str, str]
"""Notation of promtool by series: `0+60x10` begins at 0 and grows by 60 at each step of a minute."""


def tells(name: str, series: Series, values: Mapping[str, float | Mapping[str, float]], *, at: str = "10m") -> Test:
    """Expects of each expression one value by the labels of its series, no more series; of a number, no labels."""
    asked = [
        {"expr": f"round({expression}, 0.0001)", "eval_time": at, "exp_samples": _samples(value)}
        for expression, value in values.items()
    ]
    return {"name": name, "interval": "1m", "input_series": _series(series), "promql_expr_test": asked}


def of_service(series: Series, service: str) -> Series:
    """The same, each with the label that says whose it is: ours, or Sloth's on what rules of SLOs record."""
    found = {}
    for name, values in series.items():
        metric, _, labels = name.removesuffix("}").partition("{")
        whose = f'{"sloth_service" if metric.startswith("slo:") else "service"}="{service}"'
        found[f"{metric}{{{', '.join(filter(None, (whose, labels)))}}}"] = values
    return found


def alerts(name: str, series: Series, alert: str, fired: Sequence[Test], *, at: str) -> Test:
    """Expects these alerts of that name and no others."""
    expected = [{"eval_time": at, "alertname": alert, "exp_alerts": list(fired)}]
    return {"name": name, "interval": "1m", "input_series": _series(series), "alert_rule_test": expected}


def judged(folder: Path, groups: Sequence[RuleGroup], tests: Sequence[Test], *, every: str = "1m") -> str:
    """What promtool says against the rules; nothing when all is as expected."""
    (folder / "rules.yaml").write_text(rule_file(groups))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": every, "tests": list(tests)}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    run = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    return "" if run.returncode == 0 else run.stdout + run.stderr


def _series(series: Series) -> list[Test]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _samples(value: float | Mapping[str, float]) -> list[Test]:
    by_labels = value if isinstance(value, Mapping) else {"{}": value}
    return [{"labels": labels, "value": number} for labels, number in by_labels.items()]
