"""Brings up two regions on this machine, each a whole Kubernetes cluster, and takes them down again: `make cluster`.

    python tests/cluster/kit.py up KIT FOLDER        # FOLDER gets kubeconfig.yaml and surroundings.json
    python tests/cluster/kit.py down KIT FOLDER

KIT is a folder with the programs of clusters that need neither Docker nor a virtual machine, only root on Debian.
What is there already is left as it is: a second `up` takes seconds. Only Python's own library is needed, so that
clusters can be brought up while the project is still being installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.argo.definitions import definitions

REGIONS = {"main": 1, "west": 2}
"""Names and numbers of the clusters; addresses follow from the numbers."""
CACHE = Path(os.environ.get("TG_CACHE", "/var/cache/tidegate"))
BASE = CACHE / "layouts" / "python-base"
STATE = Path("/var/lib/tidegate")
IMAGES = ("pause", "busybox", "envoy", "argoexec", "envoy-gateway")
"""All that a region runs; the kit has one more, of which nothing here is made."""
MLFLOW_PORT = 5005
TRIES = 20
SHARES = 20480
"""Of a cluster's pods, where a process outside has 1024."""
PROXY_PROBES = {
    "readinessProbe": {"timeoutSeconds": 10, "failureThreshold": 6},
    "livenessProbe": {"timeoutSeconds": 10, "failureThreshold": 6},
}
"""When a gateway's proxy is out of service, and when it is started again. With Envoy Gateway's own probes one answer
that takes more than a second, as a busy machine's does now and then, leaves the only proxy of a region without new
connections until the next probe, five seconds later."""


def main() -> int:
    what, kit, folder = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    if what == "down":
        for name in REGIONS:
            subprocess.run([kit / "down", name], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    begun = time.monotonic()
    with ThreadPoolExecutor() as pool:
        install(kit)
        base = pool.submit(make_base, kit)
        make_images(kit)
        say(f"programs and images are there, {time.monotonic() - begun:.0f} s")
        regions = [pool.submit(bring_up, kit, name, number) for name, number in REGIONS.items()]
        for each in (*regions, base):
            each.result()
    call(kit / "tg", "link", *REGIONS)
    for shares in Path("/sys/fs/cgroup").glob("cpu/tidegate/**/cpu.shares"):
        if "kubepods" not in shares.parts:
            # Else all pods together would get as much of a processor as one process of the tests.
            shares.write_text(str(SHARES))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kubeconfig.yaml").write_text(json.dumps(kubeconfig()), encoding="utf-8")
    (folder / "surroundings.json").write_text(json.dumps(surroundings(kit), indent=2), encoding="utf-8")
    say(f"{' and '.join(REGIONS)} are up, {time.monotonic() - begun:.0f} s: KUBECONFIG={folder / 'kubeconfig.yaml'}")
    return 0


def install(kit: Path) -> None:
    """Debian packages, once a machine."""
    wanted = [line for line in (kit / "packages.txt").read_text().split("\n") if line and not line.startswith("#")]
    if call("dpkg-query", "-W", *wanted, must=False):
        say("installing Debian packages")
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        call("apt-get", "update", "-qq")
        # Somebody else may be installing something just now.
        patient = ("-o", "DPkg::Lock::Timeout=600")
        call("apt-get", *patient, "install", "-y", "-qq", "--no-install-recommends", *wanted, env=quiet)


def make_images(kit: Path) -> None:
    """Programs and images of a cluster's own parts, once a machine."""
    call(kit / "tg", "unpack")
    call(kit / "images.sh", *IMAGES)
    call(kit / "tg", "seed")


def make_base(kit: Path) -> None:
    """What engines stand on, once a machine."""
    if not (BASE / "index.json").exists():
        call(kit / "images-tidegate.sh", "python-base")


def bring_up(kit: Path, name: str, number: int) -> None:
    """One region: cluster, gateway, Prometheus, and workflows where deliveries start."""
    if not call(kit / "tg", "kubectl", name, "get", "--raw", "/readyz", must=False):
        return
    # What an earlier one left behind, such as one that ended with its machine.
    call(kit / "down", name)
    without = [] if number == 1 else ["--without", "argo"]
    call(kit / "up", name, "--index", str(number), *without)
    # The kinds of Argo Rollouts, which the kit does not have.
    kinds = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions()})
    call(kit / "tg", "kubectl", name, "apply", "--server-side", "-f", "-", given=kinds)
    be_patient(kit, name)
    for left in reversed(range(TRIES)):
        # Kinds that were defined a moment ago are answered with 429 until their storage is there.
        if not call(kit / "prometheus.py", "up", name, must=not left):
            return
        time.sleep(1)


def be_patient(kit: Path, name: str) -> None:
    """Let a gateway's proxy miss some probes before it loses its users."""
    container = {"name": "envoy", **PROXY_PROBES}
    value = {"spec": {"template": {"spec": {"containers": [container]}}}}
    deployment = {"patch": {"type": "StrategicMerge", "value": value}}
    patch = {"spec": {"provider": {"kubernetes": {"envoyDeployment": deployment}}}}
    proxy = ("-n", "envoy-gateway-system", "patch", "envoyproxy", "tidegate")
    call(kit / "tg", "kubectl", name, *proxy, "--type", "merge", "-p", json.dumps(patch))


def kubeconfig() -> dict[str, Any]:
    """One file with a context for each region, named like it."""
    parts = [json.loads((STATE / name / "kubeconfig.yaml").read_text()) for name in REGIONS]
    merged: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": next(iter(REGIONS))}
    for key in ("clusters", "users", "contexts"):
        merged[key] = [
            each if key == "contexts" else each | {"name": name}
            for name, part in zip(REGIONS, parts, strict=True)
            for each in part[key]
        ]
    for name, context in zip(REGIONS, merged["contexts"], strict=True):
        context |= {"name": name, "context": {"cluster": name, "user": name}}
    return merged


def surroundings(kit: Path) -> dict[str, Any]:
    """As tests/cluster/surroundings.py reads it."""
    first, number = next(iter(REGIONS.items()))
    inside = f"10.{64 + number}.0.1:{MLFLOW_PORT}"
    process_1 = (Path("/run/tidegate") / first / "init.pid").read_text().strip()
    tool = str(kit / "tg")
    return {
        "clusters": {name: region(tool, name, number) for name, number in REGIONS.items()},
        "base": f"{BASE}:base",
        "versions": pinned(kit),
        "workflows": {
            "prefix": ["nsenter", "-t", process_1, "-n", "--"],
            "address": inside,
            "forwarded": f"127.0.{10 + number}.1:{MLFLOW_PORT}",
            "forward": [tool, "forward", first, str(MLFLOW_PORT), inside],
            "servers": {name: f"https://10.{64 + each}.0.1:6443" for name, each in REGIONS.items()},
        },
    }


def region(tool: str, name: str, number: int) -> dict[str, Any]:
    """One cluster's part of it."""
    address = f"127.0.{10 + number}.1"
    return {
        "context": name,
        "registry": f"{address}:5000",
        "prometheus": f"http://{address}:9090",
        "prometheus_inside": "http://prometheus-operated.monitoring.svc:9090",
        "gateway_class": "tidegate",
        "gateway_namespace": "envoy-gateway-system",
        "address": address,
        "forward": [tool, "forward", name, "{port}", "{host}:80"],
        "stop": [tool, "stop", name, "kube-apiserver", "-9"],
        "start": [tool, "start", name, "kube-apiserver"],
    }


def call(
    program: str | Path,
    *arguments: str | Path,
    must: bool = True,
    given: str = "",
    env: dict[str, str] | None = None,
) -> int:
    """Run it, and show what it said only when it failed; its exit code."""
    done = subprocess.run([program, *arguments], input=given, capture_output=True, text=True, check=False, env=env)
    if done.returncode and must:
        words = " ".join(map(str, (program, *arguments)))
        sys.exit(f"{words}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode


def pinned(kit: Path) -> dict[str, str]:
    """What a kit for clusters builds and no cluster tells, by our names."""
    lines = (kit / "versions.env").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    names = {"ENVOY_GATEWAY": "Envoy Gateway", "ARGO_WORKFLOWS": "Argo Workflows"}
    return {name: pins[key] for key, name in names.items() if key in pins}


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
