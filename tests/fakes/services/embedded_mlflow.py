"""MLflow's tables in a SQLite file, as a first command makes them: copied, because making them takes MLflow seconds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from fakes.services.shared import shared_file

from registry.ports import embedded_uri

_MAKE = """
import sys
from registry.mlflow_client import open_client

open_client(sys.argv[1])
"""


def write_embedded_mlflow(state: Path) -> str:
    """An empty one in that folder; returns its tracking URI."""
    write_tables(state / "mlflow.db")
    return embedded_uri(state)


def write_tables(path: Path) -> None:
    """The empty ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(shared_file("mlflow.db", _made), path)


def _made(path: Path) -> None:
    # In a process of its own: ours may never need MLflow's library.
    subprocess.run([sys.executable, "-c", _MAKE, f"sqlite:///{path}"], check=True)
