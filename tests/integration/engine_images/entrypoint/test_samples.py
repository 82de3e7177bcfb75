"""An engine that is asked to keep samples of its users' requests, from outside of its processes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from fakes.engines.engine_image import Process1, write_engine_root

from engine_images.samples.key import REDACTED, WHERE, SampleKey

Start = Callable[..., Process1]
NAMED = {"x-request-id": "as a proxy names it"}
USUAL = {"redact": REDACTED, "words": (), "max_entries": 10, "max_bytes": 1 << 20, "keep_seconds": 60.0}


def until_status(engine: Process1, **wanted: Any) -> dict[str, Any]:
    """What it says of its samples, once it is that."""
    for _ in range(200):
        found: dict[str, Any] = engine.get("/tidegate/status").json()["samples"]
        if wanted.items() <= found.items():
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def ask(engine: Process1, prompt: str, tokens: int = 3) -> None:
    body = {"prompt": prompt, "max_tokens": tokens, "stream": True}
    httpx.post(f"{engine.url}/v1/completions", json=body, headers=NAMED, trust_env=False).raise_for_status()


def test_samples_are_kept_from_the_files_coming_to_its_going(tmp_path: Path, start: Start) -> None:
    file, key = tmp_path / "samples" / "eu.json", SampleKey()
    engine = start(write_engine_root(tmp_path), "--samples", str(file)).until_ready()
    ask(engine, "before anybody asked for samples")
    assert until_status(engine)["on"] is False
    file.parent.mkdir()
    file.write_text(key.request({"7": 1.0}, until=time.time() + 60, **USUAL))
    until_status(engine, on=True)
    ask(engine, "mail me at ann@mail.example")
    body = {"prompt": "away", "max_tokens": 500, "stream": True}
    with engine.client() as client, client.stream("POST", "/v1/completions", json=body, headers=NAMED) as left:
        next(left.iter_bytes())
    until_status(engine, held=2)
    headers = {"authorization": f"Bearer {key.token}"}
    body = httpx.post(f"{engine.url}{WHERE}", headers=headers, trust_env=False).json()
    found = [json.loads(key.open(base64.b64decode(each))) for each in body["samples"]]
    assert [(each["prompt"], each["whole"]) for each in found] == [("mail me at [email]", True), ("away", False)]
    assert found[0]["answer"] == "0 1 2 "
    ask(engine, "not taken by anybody")
    until_status(engine, held=1)
    file.unlink()
    assert until_status(engine, on=False)["held"] == 0
    assert httpx.post(f"{engine.url}{WHERE}", headers=headers, trust_env=False).status_code == 404


def test_an_engine_without_the_option_never_keeps_any(tmp_path: Path, start: Start) -> None:
    engine = start(write_engine_root(tmp_path)).until_ready()
    ask(engine, "hello")
    assert engine.get("/tidegate/status").json()["samples"] == {"on": False, "held": 0}
