"""A real registry on the loopback: Debian's `docker-registry`, started, killed and started again on its own folder."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from rollouts.adapters.ports import free_port

USER, PASSWORD = "pusher", "horse-battery-staple"
HTPASSWD = f"{USER}:$2b$04$abcdefghijklmnopqrstuub62nJ3/X6qMfRCn8MRcp8C6BVMTsCAK\n"
"""bcrypt of the password, as the registry wants it."""
PROGRAM = shutil.which("docker-registry")


class RegistryServer:
    """One registry; its content outlives its process."""

    def __init__(
        self,
        folder: Path,
        *,
        locked: bool = False,
        storage: Path | None = None,
        address: str = "127.0.0.1",
        encrypted: bool = False,
        tokens: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.storage = storage or folder / "storage"
        self.host = f"{address}:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": False}},
            "storage": {"filesystem": {"rootdirectory": str(self.storage)}, "delete": {"enabled": True}},
            "http": {"addr": self.host},
        }
        if locked:
            (folder / "htpasswd").write_text(HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
        if encrypted:
            config["http"]["tls"] = {"certificate": str(self.certificate), "key": str(folder / "tls.key")}
            self_signed(address, self.certificate, folder / "tls.key")
        if tokens:
            config["auth"] = {"token": tokens}
        (folder / "config.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM or "docker-registry", "serve", str(self.folder / "config.yml")], stdout=log, stderr=log
            )
        host, port = self.host.split(":")
        for _ in range(200):
            with suppress(OSError), socket.create_connection((host, int(port))):
                return
            time.sleep(0.05)
        raise RuntimeError(self.log.read_text())

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None

    @property
    def certificate(self) -> Path:
        """What clients of an encrypted one must trust."""
        return self.folder / "tls.pem"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def push(self, layout: Path, name: str, repository: str) -> None:
        """With another tool than ours."""
        source, target = f"oci:{layout}:{name}", f"docker://{self.host}/{repository}"
        subprocess.run(
            ["skopeo", "copy", "-q", "--preserve-digests", "--dest-tls-verify=false", source, target], check=True
        )

    def pull(self, repository: str, layout: Path) -> Path:
        """With another tool than ours."""
        source, target = f"docker://{self.host}/{repository}", f"oci:{layout}:pulled"
        subprocess.run(
            ["skopeo", "copy", "-q", "--preserve-digests", "--src-tls-verify=false", source, target], check=True
        )
        return layout

    def tags(self, repository: str) -> list[str]:
        """Those that anyone would see."""
        return list(httpx.get(f"http://{self.host}/v2/{repository}/tags/list").json().get("tags") or [])

    def requests(self, method: str, part: str) -> int:
        """How often the registry's own access log has such a request."""
        return sum(f'"{method} ' in line and part in line for line in self.log.read_text().splitlines())


def _skopeo(*arguments: str) -> None:
    # Left to itself it compresses layers, which makes another image.
    subprocess.run(["skopeo", "copy", "--quiet", "--preserve-digests", *arguments], check=True)


def self_signed(address: str, certificate: Path, key: Path) -> None:
    """A certificate that nobody vouches for, good for two days."""
    names = ["-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-noenc",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run([*command, "-days", "2", *names], check=True, capture_output=True)
