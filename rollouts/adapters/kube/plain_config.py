"""A kubeconfig's credentials that stand in files: tokens, passwords, certificates; and a pod's own."""

from __future__ import annotations

import atexit
import base64
import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from rollouts.adapters.kube.access import Credential, Server


class BrokenConfig(Exception):
    """A kubeconfig that is not as it should be; says where, and never what stands there."""


@dataclass(frozen=True)
class Entry:
    """A named cluster, user or context, and the folder that its relative paths start from."""

    content: Mapping[str, Any]
    folder: Path


@dataclass(frozen=True)
class Context:
    """Who asks which API server."""

    name: str
    namespace: str | None
    cluster: Entry
    user: Mapping[str, Any] = field(repr=False)
    user_folder: Path = Path()

    @property
    def needs_plugin(self) -> bool:
        """Whether its credentials are what a program says; a token that stands beside it goes first, as in kubectl."""
        if self.user.get("auth-provider"):
            return True
        return bool(self.user.get("exec")) and not (self.user.get("token") or self.user.get("tokenFile"))


@dataclass(frozen=True)
class Merged:
    """All files of `KUBECONFIG` as one: of entries with one name the first counts."""

    current: str | None
    contexts: Mapping[str, Entry]
    clusters: Mapping[str, Entry]
    users: Mapping[str, Entry]

    def context(self, name: str) -> Context:
        """That context, whole.

        Raises:
            BrokenConfig: it names what is not there.
        """
        said = self.contexts[name].content
        user = said.get("user")
        found = _named(self.users, "users", user) if user else Entry({}, Path())
        cluster = _named(self.clusters, "clusters", said.get("cluster"))
        return Context(name, said.get("namespace"), cluster, found.content, found.folder)


def merged(files: str) -> Merged | None:
    """Read the files; None when none of them exists.

    Raises:
        BrokenConfig, yaml.YAMLError, OSError: one of them is no kubeconfig.
    """
    current: str | None = None
    parts: dict[str, dict[str, Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
    paths = [Path(each).expanduser() for each in files.split(os.pathsep) if each]
    there = [path for path in paths if path.exists()]
    for path in there:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise BrokenConfig(f"{path} is no kubeconfig")
        for part, entries in parts.items():
            for entry in content.get(part) or []:
                of = entry.get(part.removesuffix("s")) or {}
                entries.setdefault(entry["name"], Entry(of, path.absolute().parent))
        current = content.get("current-context") or current
    return Merged(current, **parts) if there else None


def credential_of(context: Context, *, good_until: datetime | None) -> Credential:
    """What stands in the files now.

    Raises:
        BrokenConfig, OSError: something that they name is not there.
    """
    cluster, user = context.cluster, Entry(context.user, context.user_folder)
    if "server" not in cluster.content:
        raise BrokenConfig(f"the cluster of context {context.name} has no server")
    url = str(cluster.content["server"]).rstrip("/")
    files: list[str | None] = [None, None, None]
    if url.startswith("https"):
        files = [
            _file(cluster, "certificate-authority"),
            _file(user, "client-certificate"),
            _file(user, "client-key"),
        ]
    server = Server(
        url=url,
        ca_file=files[0],
        verify=not cluster.content.get("insecure-skip-tls-verify", False),
        tls_name=cluster.content.get("tls-server-name"),
        proxy=cluster.content.get("proxy-url") or _environments_proxy(url),
        certificate_file=files[1],
        key_file=files[2],
        fingerprint=_fingerprint(*files),
    )
    return Credential(server, _authorization(user), good_until)


def of_service_account(folder: Path, environment: Mapping[str, str], *, good_until: datetime) -> Credential:
    """What the kubelet gives every pod.

    Raises:
        BrokenConfig, OSError: it is not there, or empty.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise BrokenConfig("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
    token, authority = (folder / "token").read_text(), folder / "ca.crt"
    if not token or not authority.read_text():
        raise BrokenConfig(f"the token or the certificate in {folder} is empty")
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    server = Server(
        url=url, ca_file=str(authority), proxy=_environments_proxy(url), fingerprint=_fingerprint(str(authority))
    )
    return Credential(server, f"Bearer {token}", good_until)


def _named(entries: Mapping[str, Entry], kind: str, name: object) -> Entry:
    if not isinstance(name, str) or name not in entries:
        raise BrokenConfig(f"{kind} has no {name!r}")
    return entries[name]


def _authorization(user: Entry) -> str | None:
    said = user.content
    token = said.get("token") or ((user.folder / said["tokenFile"]).read_text() if said.get("tokenFile") else None)
    if token:
        return f"Bearer {token}"
    if "username" in said and "password" in said:
        return "Basic " + base64.b64encode(f"{said['username']}:{said['password']}".encode()).decode()
    return None


def _file(entry: Entry, name: str) -> str | None:
    """The file that is named, or one with what stands in the entry itself: TLS reads files only."""
    inside = entry.content.get(f"{name}-data")
    if inside:
        return _written(base64.standard_b64decode(inside))
    if not entry.content.get(name):
        return None
    path = Path(os.path.normpath(entry.folder / entry.content[name]))
    if not path.is_file():
        raise BrokenConfig(f"File does not exist: {path}")
    return str(path)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Of this process, for its owner only; gone with it."""
    folder = tempfile.TemporaryDirectory(prefix="tidegate-")
    atexit.register(folder.cleanup)
    return folder


def _written(content: bytes) -> str:
    path = Path(_folder().name, hashlib.sha256(content).hexdigest())
    if not path.exists():
        path.write_bytes(content)
    return str(path)


def _fingerprint(*files: str | None) -> str:
    return hashlib.sha256(b"".join(Path(each).read_bytes() for each in files if each)).hexdigest()


def _environments_proxy(url: str) -> str | None:
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
