"""Stands in for the tool of NVIDIA's driver: it answers `--query-gpu=FIELDS --format=csv,noheader,nounits [-i IDS]`.

It prints what the tool's manual shows. What the GPUs are stands in a file next to it, a line for each, so that a test
can change what is free while something waits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

H100 = "NVIDIA H100 80GB HBM3"

SCRIPT = """#!/bin/sh
# $1 --query-gpu=FIELDS  $2 --format=...  $3 -i  $4 IDS
exec {python} -I -S - "$0.gpus" "$@" <<'END'
import sys
table, query, format_, *rest = sys.argv[1:]
assert format_ == "--format=csv,noheader,nounits", format_
fields = query.partition("=")[2].split(",")
shown = rest[1].split(",") if rest[:1] == ["-i"] else None
for line in open(table):
    gpu = dict(zip(("index", "name", "memory.free"), line.rstrip("\\n").split("|")))
    if shown is None or gpu["index"] in shown:
        print(", ".join(gpu[field] for field in fields))
END
"""


@dataclass(frozen=True)
class DriverTool:
    """The program, and the folder to put first on PATH."""

    folder: Path

    @property
    def path(self) -> str:
        """A value for PATH."""
        return f"{self.folder}:{os.environ['PATH']}"

    def shows(self, gpus: Iterable[tuple[str, int]]) -> None:
        """From now on it tells of these GPUs: name, and MiB that are free."""
        lines = [f"{index}|{name}|{free}\n" for index, (name, free) in enumerate(gpus)]
        table = self.folder / "nvidia-smi.gpus"
        table.with_suffix(".new").write_text("".join(lines), encoding="ascii")
        table.with_suffix(".new").replace(table)


def driver_tool(folder: Path, *gpus: tuple[str, int]) -> DriverTool:
    """Write the program into `folder`, for a machine with these GPUs."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = DriverTool(folder)
    tool.shows(gpus)
    program = folder / "nvidia-smi"
    program.write_text(SCRIPT.format(python=sys.executable), encoding="ascii")
    program.chmod(0o755)
    return tool
