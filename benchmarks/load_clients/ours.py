"""One block of our load, as the stage `load` brings it; writes the quantiles of what it measured, as JSON.

Runs in a process of its own (`run.py` starts it), pinned with all its children.
"""

from __future__ import annotations

import asyncio
import json
import sys
from math import ceil
from pathlib import Path
from statistics import mean

from benchmarks.figures import Quantiles
from benchmarks.load_clients.clients import Place, Task
from pipelines.adapters.load.process import LocustLoads
from pipelines.load import RATE_OF_A_PROCESS, LoadOrder, plain_requests


async def main(task: Task, place: Place) -> None:
    texts = [json.loads(line)["prompt"] for line in place.prompts.read_text().splitlines()]
    order = LoadOrder(
        url=task.url,
        model=task.model,
        region="bench",
        role="canary",
        version="1",
        seconds=task.seconds,
        rate=task.rate,
        seed=1,
    )
    processes = ceil(task.rate / RATE_OF_A_PROCESS)
    requests = plain_requests(texts, task.tokens)
    records = await LocustLoads(place.folder / "ours").block("ours", order, requests, processes=processes)
    answered = [record for record in records if record.ok]
    found = {
        "requests": len(answered),
        "failed": len(records) - len(answered),
        "ttft_mean": mean(record.ttft_seconds or 0.0 for record in answered),
        "ttft": Quantiles.of(record.ttft_seconds for record in answered).model_dump(),
        "itl": Quantiles.of(record.itl_mean_seconds for record in answered).model_dump(),
    }
    (place.folder / "ours.json").write_text(json.dumps(found))


if __name__ == "__main__":
    url, model, rate, seconds, tokens, *paths = sys.argv[1:]
    asked = Task(url, model, float(rate), float(seconds), int(tokens))
    asyncio.run(main(asked, Place(*map(Path, paths))))
