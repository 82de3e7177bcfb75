"""MLflow's own tracking server, which hands out artifacts itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes.servers import free_address, running


@contextmanager
def mlflow_server(folder: Path, address: str | None = None) -> Iterator[str]:
    """Its tracking URI while it runs; `folder` outlives it, and so may `address`, a free one otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    address = address or free_address()
    host, _, port = address.partition(":")
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", port, "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--serve-artifacts"]
    with running(command, ready=f"http://{address}/health", log=folder / "server.log", within=120):
        yield f"http://{address}"
