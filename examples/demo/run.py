"""`make demo`: delivers a healthy version to two regions, and rolls back a wrong one and a slow one.

Everything in it is real: SmolLM2-135M-Instruct under vLLM on this machine's CPU, Envoy in front of each region,
Prometheus, MLflow, and users who keep asking all the time. It uses the same commands as anybody would. At the end the
fleet stays up, with MLflow's UI, until `make demo-down`.

With `--accelerator` (`make demo ACCELERATOR=nvidia-h100-80gb`) the same engines share this machine's GPU. That never
ran: no GPU was at hand.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uv

from engine_images.accelerators import DEVICES, Accelerator
from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.gpus import require_accelerator
from pipelines.adapters.fleets import running_host
from registry.deliveries import MlflowDeliveries
from registry.errors import UnknownModel
from registry.files import digest_files, whole_digest
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from rollouts.adapters.sockets import free_port
from tidegate.cli import main
from tidegate.core.errors import ExitCode, TidegateError, UsageError

HERE = Path(__file__).parent
SPEC = str(HERE / "delivery.yaml")
NAME = "support-llm"
USERS_SECONDS = 60.0
PAGE_SECONDS = 120.0
ON_GPU = {
    "  accelerator: cpu": "  accelerator: {accelerator}",
    # Attention on a GPU computes in 16 bits, and keeps prefixes in blocks of 16 tokens by itself.
    # Stable and canary of two regions stand on one GPU.
    "dtype: float32, block-size: 32}": "dtype: {dtype}, gpu-memory-utilization: 0.2}",
    # Four engines on two cores are three times as slow with three times the layers; a GPU waits for the same server in
    # front of them, whose time does not grow with the layers.
    "quantile: 0.5, max_increase: 100%": "quantile: 0.5, max_increase: 50%",
}
"""What is another one in the spec on a GPU, and what it is there."""
DESCRIPTIONS = {
    "1": "SmolLM2-135M-Instruct, the champion",
    "2": "a healthy re-export of version 1",
    "3": "fast and silently broken: every request succeeds, every answer is wrong",
    "4": "slow: the same answers, three times the layers",
}


@dataclass(frozen=True)
class Expected:
    """How the delivery of a version must end, and which gate must have seen why."""

    exit_code: int
    gate: str | None


EXPECTED = {"2": Expected(0, None), "3": Expected(1, "quality"), "4": Expected(1, "latency")}


def say(line: str) -> None:
    print(f"\n== {line}", flush=True)


def spec_on(accelerator: Accelerator, folder: Path = HERE) -> Path:
    """The demo's spec for engines on that accelerator; by default next to the one for a CPU, whose files it names."""
    text = Path(SPEC).read_text(encoding="utf-8")
    if accelerator is Accelerator.CPU:
        return Path(SPEC)
    dtype = "bfloat16" if DEVICES[accelerator].bfloat16 else "float16"
    for before, after in ON_GPU.items():
        if text.count(before) != 1:
            raise UsageError(f"{SPEC}: expected one {before.strip()!r}; found {text.count(before)}")
        text = text.replace(before, after.replace("{accelerator}", accelerator).replace("{dtype}", dtype))
    path = folder / f"delivery-{accelerator}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def tidegate(*arguments: str) -> int:
    """One command, as typed.

    Raises:
        KeyboardInterrupt: it was asked to stop, and with it all that is to come.
    """
    print(f"$ tidegate {' '.join(arguments)}", flush=True)
    code = main(arguments)
    if code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    return code


def make_models(folder: Path, accelerator: Accelerator) -> None:
    """Convert the model once; the engine environment has torch, this one has not."""
    command = [
        find_engine_environment(accelerator.platform).python,
        str(HERE / "models.py"),
        str(folder),
        "--uv",
        uv.find_uv_bin(),
    ]
    subprocess.run(command, check=True)


def register(state: Path, models: Path) -> None:
    """Versions 1 to 4 in this order, so that numbers and meanings agree; what is registered already stays."""
    folders = {version: models / f"v{version}" for version in DESCRIPTIONS}
    digests = [whole_digest(digest_files(folder)) for folder in folders.values()]
    registry = MlflowRegistry(embedded_uri(state))
    known = _registered(registry)
    if known not in ([], digests):
        raise UsageError(f"{state} holds other versions of {NAME}", hint=f"remove it: rm -r {state}")
    for folder in folders.values() if not known else ():
        registry.register(NAME, folder)
    registry.set_alias(NAME, "champion", "1")
    for found in registry.versions(NAME):
        print(f"{found.uri}: {DESCRIPTIONS[found.version]}")


def _registered(registry: MlflowRegistry) -> list[str]:
    try:
        return [version.digest for version in registry.versions(NAME)]
    except UnknownModel:
        return []


@contextmanager
def users(state: Path) -> Iterator[None]:
    """People who ask all the time, whatever is delivered meanwhile; at the end, how they fared."""
    command = Path(sys.executable).with_name("tidegate")
    process = subprocess.Popen([command, "fleet", "up", SPEC, "--users", "--state", str(state)], start_new_session=True)
    try:
        wait_for_users(state)
        yield
    finally:
        say("users: what became of every request since the fleet was up")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)


@contextmanager
def fleet(state: Path) -> Iterator[None]:
    """The champion in both regions; it stays up unless the demo is cut short."""
    if tidegate("fleet", "up", SPEC, "--state", str(state), "--detach") != 0:
        sys.exit(4)
    try:
        yield
    except BaseException:
        down(state)
        raise


def ui_command(state: Path, port: int) -> list[str]:
    """That serves MLflow's UI."""
    store = ("--backend-store-uri", embedded_uri(state))
    return [str(Path(sys.executable).with_name("mlflow")), "ui", *store, "--host", "127.0.0.1", "--port", str(port)]


def serve_ui(state: Path) -> str:
    """Serve MLflow's UI until `down`; returns where it answers, or why it does not."""
    port = free_port()
    url, log = f"http://127.0.0.1:{port}/", state / "MLflow.log"
    # MLflow's jobs cost processes.
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("w") as said:
        command = [*ui_command(state, port), "--workers", "1"]
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True, env=environment)
    (state / "MLflow.pid").write_text(str(process.pid))
    return url if answers(url, process) else f"{url} does not answer yet; see {log}"


def show(state: Path) -> None:
    """Print every address of what stays up."""
    host = asyncio.run(running_host(state))
    assert host is not None, "the fleet is up"
    found = {f"Envoy {region}": entry for region, entry in host.regions().items()}
    found |= {"Prometheus": host.prometheus_url, "MLflow": serve_ui(state)}
    say("still up, until make demo-down")
    for name, url in found.items():
        print(f"{name:18} {url}")


def answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether it answers before `PAGE_SECONDS` are over; not once its process has ended."""
    deadline = time.monotonic() + PAGE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        time.sleep(0.5)
    return False


def down(state: Path) -> None:
    """Stop everything that a demo left up; nothing when there is nothing."""
    path = state / "MLflow.pid"
    with suppress(OSError, ValueError):
        pid = int(path.read_text())
        # The id may be another process's by now.
        if ui_command(state, 0)[0] in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0"):
            os.killpg(pid, signal.SIGTERM)
            deadline = time.monotonic() + PAGE_SECONDS
            while time.monotonic() < deadline:
                # Raises once it is gone.
                os.kill(pid, 0)
                time.sleep(0.2)
    path.unlink(missing_ok=True)
    tidegate("fleet", "down", "--state", str(state))


def wait_for_users(state: Path) -> None:
    """Until the first of them has an answer: a delivery asks users only when there are some."""
    records = state / "traffic" / f"{NAME}.jsonl"
    since, deadline = time.time(), time.monotonic() + USERS_SECONDS
    while not (records.exists() and records.stat().st_mtime >= since and records.stat().st_size):
        if time.monotonic() > deadline:
            raise UsageError(f"no user had an answer within {USERS_SECONDS:.0f} s", hint=f"see {records.parent}")
        time.sleep(0.2)


def deliver(version: str, state: Path) -> bool:
    """Deliver one version; returns whether it ended as it must, by the gate that must have seen it."""
    say(f"version {version}: {DESCRIPTIONS[version]}")
    tidegate("model", "alias", NAME, version, "challenger", "--state", str(state))
    code = tidegate("deliver", SPEC, "--state", str(state))
    last = MlflowDeliveries(embedded_uri(state)).deliveries(NAME)[0]
    expected = EXPECTED[version]
    seen = expected.gate is None or f"gate {expected.gate}:" in (last.reason or "")
    if code != expected.exit_code or not seen:
        print(f"unexpected: exit {code}, {last.outcome}: {last.reason}", file=sys.stderr)
    return code == expected.exit_code and seen


def run(state: Path, models: Path, report: Path, versions: Sequence[str], accelerator: Accelerator) -> bool:
    """The whole demo; returns whether every version ended as it must."""
    down(state)
    say("models")
    make_models(models, accelerator)
    register(state, models)
    say("fleet: version 1 serves two regions")
    with fleet(state):
        with users(state):
            good = [deliver(version, state) for version in versions]
        tidegate("report", SPEC, str(report), "--state", str(state), "--last", str(len(versions)))
        show(state)
    return all(good)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--down", action="store_true", help="only stop what a demo left up")
    parser.add_argument("--only", choices=EXPECTED, action="append", help="deliver only this version; may be repeated")
    parser.add_argument(
        "--accelerator",
        choices=list(map(str, Accelerator)),
        default=str(Accelerator.CPU),
        metavar="NAME",
        help="cpu, or the GPU of this machine, which is not taken unless it is named; each has a registry of its own",
    )
    parser.add_argument("--state", type=Path, help="the registry and everything else; default: in .tidegate")
    parser.add_argument("--models", type=Path, default=Path(".tidegate/models"), help="where converted models are kept")
    parser.add_argument("--report", type=Path, default=Path("demo-report.html"))
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    began = time.monotonic()
    on = Accelerator(arguments.accelerator)
    where = arguments.state or Path(".tidegate", "demo" if on is Accelerator.CPU else f"demo-{on}")
    if arguments.down:
        SPEC = str(spec_on(on))
        down(where)
        sys.exit(0)
    try:
        require_accelerator(on, 1, hint="name one that is here with --accelerator")
    except TidegateError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    SPEC = str(spec_on(on))
    try:
        good = run(where, arguments.models, arguments.report, arguments.only or list(EXPECTED), on)
    except KeyboardInterrupt:
        say("stopped, as asked")
        sys.exit(ExitCode.INTERRUPTED)
    say(f"{'as it must be' if good else 'NOT as it must be'}, in {time.monotonic() - began:.0f} s")
    print(f"open {arguments.report}")
    sys.exit(0 if good else 1)
