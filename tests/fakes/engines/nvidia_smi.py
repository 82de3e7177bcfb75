"""Stands in for the tool of NVIDIA's driver: it answers `--query-gpu=FIELDS --format=csv,noheader,nounits [-i IDS]`.

It prints what the tool's manual shows. What the GPUs are stands in a file next to it, a line for each.
"""

from __future__ import annotations

import os
import sys
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


def driver_tool(folder: Path, *gpus: tuple[str, int]) -> str:
    """A value for PATH by which the program is found, for a machine with these GPUs: name, and MiB that are free."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{index}|{name}|{free}\n" for index, (name, free) in enumerate(gpus)]
    (folder / "nvidia-smi.gpus").write_text("".join(lines), encoding="ascii")
    program = folder / "nvidia-smi"
    program.write_text(SCRIPT.format(python=sys.executable), encoding="ascii")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
