"""Weights that are pulled at start: proven, whole, once for all engines of a machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.engines.engine_image import PACKAGE, WEIGHTS, Process1, import_environment, write_engine_root, write_files
from fakes.services.http import QuietHandler, answering

from engine_images.entrypoint.journal import BadSettings, NotAsBuilt
from engine_images.entrypoint.weights import Source

Start = Callable[..., Process1]
NAME = "d" * 64


class Store(QuietHandler):
    """An artifact store that can be slow, break off, or lie."""

    files: dict[str, bytes]
    asked: list[tuple[str, str | None]]
    breaks: int = 0
    delay = 0.0

    def do_GET(self) -> None:
        path, begin = self.path.removeprefix("/models/7/"), self.headers["Range"]
        type(self).asked.append((path, begin))
        if self.headers["Authorization"] != "Bearer secret":
            return self.answer(status=403)
        if path not in self.files:
            return self.answer(status=404)
        threading.Event().wait(self.delay)
        content = self.files[path]
        rest = content[int(begin.removeprefix("bytes=").removesuffix("-")) :] if begin else content
        sent = rest
        if type(self).breaks and len(rest) > 100:
            type(self).breaks -= 1
            sent = rest[: len(rest) // 2]
        self.answer(sent, 206 if begin else 200, content_length=str(len(rest)))
        self.close_connection = True
        return None


@contextmanager
def store(**traits: object) -> Iterator[tuple[str, type[Store]]]:
    handler = type("ThisStore", (Store,), {"files": dict(WEIGHTS), "asked": [], **traits})
    with answering(handler) as address:
        yield f"http://{address}/models/7", handler


def begin(start: Start, root: Path, where: str, cache: Path, **options: object) -> Process1:
    environment = {"TIDEGATE_WEIGHTS_TOKEN": "secret"}
    return start(root, "--weights", where, "--weights-cache", str(cache), environment=environment, **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_engine_root(tmp_path, with_model=False)


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_two_engines_that_start_at_once_pull_once(tmp_path: Path, start: Start) -> None:
    first, second = (write_engine_root(tmp_path / name, with_model=False) for name in "ab")
    with store(delay=1.0) as (url, asked_of):
        engines = [begin(start, root, url, tmp_path / "cache") for root in (first, second)]
        await asyncio.gather(*(asyncio.to_thread(engine.until_ready) for engine in engines))
        assert sorted(asked_of.asked) == sorted((path, None) for path in WEIGHTS)
    events = [event["event"] for engine in engines for event in engine.events()]
    assert events.count("weights pulled") == events.count("weights found") == 1
    assert content_of(tmp_path / "cache" / NAME) == WEIGHTS
    assert content_of(engines[0].run / "model") == WEIGHTS


def test_a_download_that_breaks_off_is_continued(tmp_path: Path, root: Path, start: Start) -> None:
    with store(breaks=1) as (url, asked_of):
        begin(start, root, url, tmp_path / "cache").until_ready()
        half = len(WEIGHTS["model.safetensors"]) // 2
        assert ("model.safetensors", f"bytes={half}-") in asked_of.asked
    assert content_of(tmp_path / "cache" / NAME) == WEIGHTS


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (WEIGHTS | {"config.json": b"{}"}, "config.json from http://127.0.0.1/models/7 was changed"),
        ({"config.json": WEIGHTS["config.json"]}, "answers 404 for model.safetensors"),
    ],
)
def test_nothing_is_kept_of_a_source_that_is_not_right(
    tmp_path: Path, root: Path, start: Start, files: dict[str, bytes], words: str
) -> None:
    with store(files=files) as (url, _):
        engine = begin(start, root, url, tmp_path / "cache")
        assert engine.wait() == 3
    assert words in engine.event("ended")["reason"]
    assert not (tmp_path / "cache" / NAME).exists()
    assert "secret" not in engine.output.read_text()


def test_nothing_is_left_on_a_disk_that_is_full(tmp_path: Path, root: Path, start: Start) -> None:
    partial = tmp_path / "cache" / f".{NAME}.partial"
    partial.mkdir(parents=True)
    # Every write to it fails as on a full disk.
    (partial / "config.json.partial").symlink_to("/dev/full")
    with store() as (url, _):
        engine = begin(start, root, url, tmp_path / "cache")
        assert engine.wait() == 4
    assert engine.event("ended")["reason"].startswith("the disk is full: no room for ")
    assert not partial.exists()


def test_a_cache_that_was_changed_since_is_not_served(tmp_path: Path, root: Path, start: Start) -> None:
    write_files(tmp_path / "cache" / NAME, WEIGHTS | {"config.json": b"{}"})
    engine = begin(start, root, "/nowhere", tmp_path / "cache")
    assert engine.wait() == 3
    assert "config.json was changed" in engine.event("ended")["reason"]


def test_an_unknown_kind_of_source_names_the_known_ones(tmp_path: Path, root: Path, start: Start) -> None:
    engine = begin(start, root, "s3://bucket/7", tmp_path / "cache")
    assert engine.wait() == 2
    assert engine.event("ended")["reason"] == "weights come from http, https or a folder, not from s3"


def pulled(root: Path, where: str, cache: Path) -> int:
    """The exit code of `pull`, as a container before the engine runs it."""
    command = [sys.executable, "-m", PACKAGE, "pull", "--root", root, "--weights", where, "--weights-cache", cache]
    environment = import_environment(root) | {"TIDEGATE_WEIGHTS_TOKEN": "secret"}
    return subprocess.run(command, env=environment, timeout=60, check=False).returncode


def test_a_container_before_it_pulls_and_the_engine_only_reads(tmp_path: Path, root: Path, start: Start) -> None:
    cache = tmp_path / "cache"
    with store() as (where, _):
        assert pulled(root, where, cache) == 0
    assert content_of(cache / NAME) == WEIGHTS
    before = sorted(path.stat().st_mtime_ns for path in cache.rglob("*"))
    # The store is gone: the one who serves has nothing to pull.
    engine = begin(start, root, where, cache)
    engine.until_ready()
    assert engine.event("weights found")
    assert sorted(path.stat().st_mtime_ns for path in cache.rglob("*")) == before


def elsewhere(where: str, host: str) -> type[QuietHandler]:
    """A store that sends the one who asks to `host`, where the same files are."""

    class Elsewhere(QuietHandler):
        def do_GET(self) -> None:
            there = where.replace("127.0.0.1", host)
            self.answer(status=302, location=f"{there}/{self.path.removeprefix('/models/7/')}")

    return Elsewhere


def test_the_token_stays_with_the_origin_that_it_was_given_for(tmp_path: Path) -> None:
    with store() as (where, theirs), answering(elsewhere(where, "localhost")) as first:
        source = Source(f"http://{first}/models/7", token="secret")
        # The other store refuses the one who comes without the token.
        with pytest.raises(NotAsBuilt, match="403"):
            source.fetch("config.json", tmp_path / "file")
    assert theirs.asked == [("config.json", None)]


def test_no_token_is_sent_over_plain_http_beyond_this_machine() -> None:
    with pytest.raises(BadSettings, match="mlflow would get the token over plain http"):
        Source("http://mlflow/models/7", token="secret")
    Source("http://mlflow/models/7")
    Source("http://[::1]:80/models/7", token="secret")
