"""A real Prometheus on a free port: over traffic that was written down for it, or over what it scrapes itself."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [
        "prometheus",
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_ready(f"http://{address}/-/ready", process)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(10)


def asked(url: str, query: str, at: float | None = None) -> Sequence[Mapping[str, Any]]:
    """The samples of an instant query."""
    parameters = urllib.parse.urlencode({"query": query} | ({"time": at} if at else {}))
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=10) as answer:
        samples: Sequence[Mapping[str, Any]] = json.load(answer)["data"]["result"]
    return samples


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, TimeoutError):
            assert process.poll() is None and time.monotonic() < until, "Prometheus did not start"
            time.sleep(0.1)
