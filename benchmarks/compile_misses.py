"""Which changes make vLLM miss a compile cache, and who says so by name: one start each, as JSON.

    .venv/bin/python -m benchmarks.compile_misses MODEL --state .tidegate/bench > result.json

`MODEL` is a Hugging Face directory. Its engine is built first, or found in `--state`, and then started with one thing
changed at a time, told to fail instead of compiling again. `missed` is what vLLM did; `entrypoint` are the factors
that our entrypoint named before vLLM began, `vllm` those in which vLLM's own key differs. A change whose name starts
with `same:` is one that must not matter. On a GPU: `benchmarks/gpu.sh --part misses`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from benchmarks.figures import machine
from benchmarks.gpu.engines import built, order_of, say
from benchmarks.gpu.misses import changes_there, missed


def main() -> None:
    parser = argparse.ArgumentParser(description="Find out what makes vLLM miss a compile cache.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--state", type=Path, default=Path(".tidegate/bench"))
    parser.add_argument("--only", default="", help="changes whose names have this in them")
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.model, arguments.state, arguments.only)), indent=2))


async def measure(model: Path, state: Path, only: str) -> dict[str, Any]:
    order = order_of(model)
    engine = await built(order, state)
    found = {}
    for change in changes_there(on_cpu=True, small=False)[0]:
        if only in change.what:
            say(change.what)
            found[change.what] = await missed(order, engine, change, state)
    return {"machine": machine(), "engine": engine.engine, "changes": found}


if __name__ == "__main__":
    main()
