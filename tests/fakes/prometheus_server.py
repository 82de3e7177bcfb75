"""A real Prometheus on a free port: over traffic that was written down for it, or over what it scrapes itself."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes.servers import free_address, running


def written_down(home: Path, lines: Iterable[str]) -> Path:
    """The folder of a database that holds `lines` of an exposition with times."""
    (home / "series.txt").write_text("\n".join([*lines, "# EOF", ""]))
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(home / "series.txt"), str(home / "data")]
    subprocess.run(make, check=True, capture_output=True)
    return home / "data"


@contextmanager
def prometheus(home: Path, config: Mapping[str, object] | None = None) -> Iterator[str]:
    """Its address, once it answers; data are those in `home / "data"`."""
    (home / "prometheus.yml").write_text(json.dumps(config or {}))
    address = free_address()
    command = [
        "prometheus",
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    with running(command, ready=f"http://{address}/-/ready", log=home / "log"):
        yield f"http://{address}"


def asked(url: str, query: str, at: float | None = None) -> Sequence[Mapping[str, Any]]:
    """The samples of an instant query."""
    parameters = urllib.parse.urlencode({"query": query} | ({"time": at} if at else {}))
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=10) as answer:
        samples: Sequence[Mapping[str, Any]] = json.load(answer)["data"]["result"]
    return samples
