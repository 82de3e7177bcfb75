"""A small engine: as an image of real documents and files, and laid out as in one with its entrypoint started.

Nothing here takes vLLM to make; the entrypoint runs as process 1 would.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fakes.waiting import PATIENCE_SECONDS, eventually, until

from engine_images import entrypoint
from engine_images.adapters.oci_build import build_image, put_image
from engine_images.adapters.oci_layout import OciLayout, write_layer
from engine_images.manifest import CompileKey, EngineManifest, Launch, ModelContract
from engine_images.oci.compose import Contents, Files
from engine_images.oci.model import Base, Descriptor, Platform, Runtime
from engine_images.signature import SigningKey
from rollouts.adapters.sockets import free_port

AMD64 = Platform(architecture="amd64")
RUNTIME = Runtime(entrypoint=("/opt/venv/bin/python", "/engine/entrypoint"), workdir="/engine")
ENTRYPOINT: Files = {"__main__.py": b"print('ready')\n"}
CACHE: Files = {"aot/rank_0_0/model": b"compiled", "aot/kernel.so": b"\x7fELF"}
MODEL: Files = {"model.safetensors": b"w" * 5000, "tokenizer.json": b"{}"}
FACTORS = {"vllm": "0.32.0", "torch": "2.13.0", "cpu": "avx512"}


def new_signing_key() -> SigningKey:
    """A key that has signed nothing yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    return SigningKey(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def digests(files: Files) -> dict[str, str]:
    return {name: hashlib.sha256(_content(source)).hexdigest() for name, source in files.items()}


def contents(
    *,
    version: str = "7",
    model: Files = MODEL,
    cache: Files = CACHE,
    sbom: bytes = b"",
    with_weights: bool = True,
    entrypoint: Files = ENTRYPOINT,
    digest: str = "d" * 64,
) -> Contents:
    manifest = EngineManifest(
        engine="e" * 64,
        model=ModelContract(name="support-llm", version=version, digest=digest, files=digests(model)),
        launch=Launch(arguments=("--port", "{port}"), environment={}, drain_seconds=30),
        key=CompileKey(factors=FACTORS),
        cache=digests(cache),
    )
    return Contents(
        manifest=manifest, entrypoint=entrypoint, cache=cache, model=model if with_weights else {}, sbom=sbom
    )


def small_base(root: Path) -> Descriptor:
    """An image named `base`, of two layers, in the layout `root`."""
    layout = OciLayout(root)
    made = [write_layer(layout, "base", {f"/base/base-{number}": b"b" * 1000}) for number in range(2)]
    runtime = Runtime(entrypoint=("/bin/sh",), environment={"PATH": "/opt/venv/bin:/usr/bin"})
    return put_image(layout, "base", Base(platform=AMD64), made, runtime=runtime)


def small_engine(
    root: Path,
    *,
    base: Base | None = None,
    name: str = "support-llm:7",
    key: SigningKey | None = None,
    runtime: Runtime = RUNTIME,
    **other: object,
) -> Descriptor:
    """An engine's image in the layout `root`; `other` goes to `contents`."""
    return build_image(
        OciLayout(root),
        name=name,
        base=base or Base(platform=AMD64),
        contents=contents(**other),  # type: ignore[arg-type]
        runtime=runtime,
        key=key,
    )


def _content(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


TESTS = Path(__file__).parents[2]
PACKAGE = "tidegate_entrypoint"
STAND_IN = "fakes.engines.stand_in_vllm"
WEIGHTS = {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"weights" * 1000}


def write_engine_root(
    folder: Path,
    *,
    model: Path | None = None,
    files: Mapping[str, bytes] = WEIGHTS,
    with_model: bool = True,
    cache: Mapping[str, bytes] = {},
    key: Mapping[str, str] | None = None,
    **launch: Any,
) -> Path:
    """`folder/engine` as an image has it; `model` is a folder to take the files from."""
    root = folder / "engine"
    shutil.copytree(Path(entrypoint.__file__).parent, root / "entrypoint" / PACKAGE)
    content = {path.name: path.read_bytes() for path in model.iterdir()} if model else files
    if with_model:
        write_files(root / "model", content)
    write_files(root / "cache", cache)
    started = {"arguments": [], "environment": {}, "drain_seconds": 30, "warm_up": [1, 4], **launch}
    manifest = {
        "format": 1,
        "engine": "e" * 64,
        "model": {"name": "tiny", "version": "7", "digest": "d" * 64, "files": weight_digests(content), "source": ""},
        "launch": started,
        "key": {"factors": key} if key else None,
        "cache": weight_digests(cache),
    }
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return root


def write_files(folder: Path, content: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def weight_digests(content: Mapping[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in content.items()}


@dataclass
class Process1:
    """The entrypoint as it runs."""

    process: subprocess.Popen[bytes]
    port: int
    run: Path
    output: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS, trust_env=False)

    def users(self) -> httpx.AsyncClient:
        """As many at once as a test wants."""
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SECONDS, trust_env=False, limits=limits)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=PATIENCE_SECONDS, trust_env=False)

    def until_ready(self) -> Process1:
        until("the engine is ready", self._is_ready)
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"not ready: {self.output.read_text()[-2000:]}"
        with suppress(httpx.TransportError):
            return self.get("/tidegate/ready").is_success
        return False

    def events(self) -> list[dict[str, Any]]:
        """What it said itself, line by line."""
        lines = self.output.read_text(encoding="utf-8").splitlines()
        said = [json.loads(line) for line in lines if line.startswith('{"time"')]
        return [event for event in said if "event" in event]

    def event(self, name: str) -> dict[str, Any]:
        return next(event for event in self.events() if event["event"] == name)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def family(self) -> set[int]:
        """Every process below it, now."""
        found, waiting = set(), {self.process.pid}
        while waiting:
            parent = waiting.pop()
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                below = {int(pid) for pid in children.read_text().split()} - found
                found |= below
                waiting |= below
        return found


def import_environment(root: Path) -> dict[str, str]:
    path = f"{root / 'entrypoint'}{os.pathsep}{TESTS}"
    return os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def start_process_1(
    root: Path,
    *options: str,
    python: str = sys.executable,
    server: str | None = STAND_IN,
    vllm: Sequence[str] = (),
    port: int | None = None,
    run: Path | None = None,
    environment: Mapping[str, str] | None = None,
    workdir: Path | None = None,
) -> Process1:
    """Start it; `vllm` are arguments for the server, `server=None` is the real one."""
    port = port or free_port()
    run = run or root.parent / "run"
    output = root.parent / f"log-{port}"
    command = [python, "-m", PACKAGE, "serve", "--root", str(root), "--run", str(run), "--host", "127.0.0.1"]
    command += ["--port", str(port), *(["--server", server] if server else []), *options]
    with output.open("wb") as log:
        process = subprocess.Popen(
            [*command, *(["--", *vllm] if vllm else [])],
            env=import_environment(root) | (environment or {}),
            cwd=workdir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Process1(process, port, run, output)


async def open_streams(client: httpx.AsyncClient, number: int, **asked: object) -> list[asyncio.Task[list[str]]]:
    """Streams of which each has begun to answer; a task has every line of one at its end."""
    opened = asyncio.Semaphore(0)
    streams = [asyncio.create_task(_read_stream(client, opened, asked)) for _ in range(number)]
    for _ in streams:
        await opened.acquire()
    return streams


async def _read_stream(client: httpx.AsyncClient, opened: asyncio.Semaphore, asked: Mapping[str, object]) -> list[str]:
    body = {"prompt": "count", "stream": True, **asked}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == httpx.codes.OK
        lines = aiter(response.aiter_lines())
        first = await anext(lines)
        opened.release()
        return [first, *[line async for line in lines if line]]


async def until_open(client: httpx.AsyncClient, number: int) -> None:
    """Return once so many answers are open."""

    async def are_open() -> bool:
        return (await client.get("/tidegate/status")).json()["open"] == number

    await eventually(f"{number} answers are open", are_open)


async def until_refused(client: httpx.AsyncClient) -> httpx.Response:
    """What a request gets once new ones are refused."""

    async def refused() -> httpx.Response | None:
        response = await client.post("/v1/completions", json={"prompt": "late", "max_tokens": 1})
        return None if response.is_success else response

    return await eventually("new requests are refused", refused)
