"""Engine images without vLLM: a base with Python, the stand-in's libraries, an engine as `engine build` lays it out.

Only the server and the base differ from a real engine's image: manifest, entrypoint and layers are the project's own.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from engine_images import entrypoint
from engine_images.adapters.oci_build import base_at, build_image, copy_base, put_image, this_platform
from engine_images.adapters.oci_layout import OciLayout, write_layer
from engine_images.adapters.oci_push import push_image
from engine_images.adapters.oci_registry import RegistryAccess
from engine_images.manifest import EngineManifest, Launch, ModelContract
from engine_images.oci.compose import Contents, Files
from engine_images.oci.model import Base, Descriptor, Runtime
from engine_images.oci.reference import ImageReference
from slo import metrics as vllm
from slo.metrics import TARGET

SITE = "/opt/standin"
PYTHON = "python3"
"""Of the base image; what brings weights starts it too."""
LIBRARIES = (
    *("anyio", "certifi", "cffi", "click", "cryptography", "h11", "httpcore", "httpx", "idna", "jinja2", "markupsafe"),
    *("prometheus-client", "pycparser", "starlette", "tokenizers", "typing-extensions", "uvicorn"),
)
"""What the server and the entrypoint import, in the versions of the project's lock."""
ROOT = Path(__file__).parents[3]


def with_libraries(base: str, layout: OciLayout, work: Path) -> Base:
    """The base image `LAYOUT:NAME` with the stand-in's libraries on top."""
    runtime = Runtime(entrypoint=(PYTHON,), environment={"PYTHONUNBUFFERED": "1"})
    append_layer(layout, "base", base_at(base, this_platform()), _site(work), runtime)
    return base_at(f"{layout.root}:base", this_platform())


def append_layer(
    layout: OciLayout,
    name: str,
    base: Base,
    files: Files,
    runtime: Runtime,
    *,
    executable: frozenset[str] = frozenset(),
) -> Descriptor:
    """An image called `name`: the base with one more layer, of files by their absolute places."""
    copy_base(base, layout)
    layers = [write_layer(layout, name, files, executable=executable)] if files else []
    return put_image(layout, name, base, layers, runtime=runtime)


def push(layout: OciLayout, image: Descriptor, target: str) -> str:
    """Send it in the clear: to a registry of tests, on this machine or next to the cluster."""
    return push_image(layout, image, ImageReference.parse(target), lambda _: RegistryAccess(insecure=True)).reference


def push_engine(layout: OciLayout, base: Base, *, name: str, version: str, model: Path, target: str) -> str:
    """An engine image of the folder `model`, pushed to `target`, which names repository and tag; its name by digest."""
    image = build_image(
        layout,
        name=f"{name}:{version}",
        base=base,
        contents=_contents(name, version, model),
        runtime=Runtime(
            entrypoint=(PYTHON, "-m", "tidegate_entrypoint", "serve", "--server", "standin"),
            environment={"PYTHONPATH": f"/engine/entrypoint:{SITE}", "PYTHONUNBUFFERED": "1"},
        ),
    )
    return push(layout, image, target)


def push_server(layout: OciLayout, base: Base, target: str) -> None:
    """An image of the server alone, started as `vllm/vllm-openai` starts vLLM: arguments come behind."""
    runtime = Runtime(
        entrypoint=(PYTHON, "-m", "standin"), environment={"PYTHONPATH": SITE, "PYTHONUNBUFFERED": "1"}, workdir="/tmp"
    )
    push(layout, append_layer(layout, "server", base, {}, runtime), target)


def _site(work: Path) -> dict[str, Path]:
    """Libraries and server, compiled so that a start compiles nothing: times in a layer would invalidate it."""
    target = work / "site"
    if not (target / "standin.py").exists():
        target.mkdir(parents=True, exist_ok=True)
        uv = Path(sys.executable).with_name("uv")
        constraints = work / "constraints.txt"
        constraints.write_text(pins(), encoding="utf-8")
        install = [uv, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", target]
        subprocess.run([*install, "--constraints", constraints, *LIBRARIES], check=True)
        (target / "metrics.json").write_text(json.dumps(_metrics()), encoding="utf-8")
        compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", target]
        (target / "standin.py").write_bytes((Path(__file__).with_name("server.py")).read_bytes())
        subprocess.run([*compiling, "-p", SITE, target], check=True)
    return {f"{SITE}/{path.relative_to(target)}": path for path in sorted(target.rglob("*")) if path.is_file()}


def pins() -> str:
    """The lock's versions without their hashes, which only a whole resolution can satisfy."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return "\n".join(line.removesuffix(" \\") for line in lines if line[:1].isalnum() and "==" in line)


def _metrics() -> list[dict[str, object]]:
    """vLLM's metrics without what Prometheus adds when it scrapes."""
    return [
        {
            "name": metric.name,
            "kind": str(metric.kind),
            "labels": [label for label in metric.labels if label not in TARGET],
            "edges": list(metric.edges),
        }
        for metric in vllm.VLLM
        if not metric.only_with and not metric.name.startswith("process_")
    ]


def _contents(name: str, version: str, model: Path) -> Contents:
    files: Files = {path.name: path for path in sorted(model.iterdir())}
    digests = {path: hashlib.sha256(Path(str(source)).read_bytes()).hexdigest() for path, source in files.items()}
    digest = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    manifest = EngineManifest(
        engine=digest,
        model=ModelContract(name=name, version=version, digest=digest, files=digests),
        launch=Launch(
            arguments=("--model", "model", "--served-model-name", name), environment={}, drain_seconds=30, warm_up=(1,)
        ),
    )
    return Contents(manifest=manifest, entrypoint=_entrypoint(), model=files)


def _entrypoint() -> Mapping[str, Path]:
    folder = Path(entrypoint.__file__).parent
    return {f"tidegate_entrypoint/{path.relative_to(folder).as_posix()}": path for path in sorted(folder.rglob("*.py"))}
