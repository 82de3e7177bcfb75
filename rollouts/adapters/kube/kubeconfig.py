"""API servers and credentials as kubeconfig files and service accounts of pods describe them.

What is read here needs no plugin: certificates, tokens, and files that hold them.
"""

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
from threading import Lock
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from tidegate.core.files import Unreadable, read_text


@dataclass(frozen=True)
class ApiServer:
    """Where an API server is and how to trust it; two that are equal can share connections."""

    url: str
    ca_file: str | None = None
    """Whom to trust; None for the authorities of this machine."""
    verify: bool = True
    tls_name: str | None = None
    """The name in the server's certificate, when it is not the one in `url`."""
    proxy: str | None = field(default=None, repr=False)
    """May carry a password."""
    certificate_file: str | None = None
    key_file: str | None = None
    fingerprint: str = ""
    """Changes with what is in the files, which are rotated in place."""


@dataclass(frozen=True)
class Credential:
    """What the kubeconfig, a plugin or the service account says now."""

    server: ApiServer
    authorization: str | None = field(default=None, repr=False)
    """The header, never to be shown; None when the client certificate says it all."""
    good_until: datetime | None = None
    """When it must be got again; None when nobody said."""


class BrokenKubeconfig(Exception):
    """A kubeconfig that is not as it should be; says where, and never what stands there."""


@dataclass(frozen=True)
class KubeconfigEntry:
    """A named cluster, user or context, and the folder that its relative paths start from."""

    content: Mapping[str, Any]
    folder: Path


@dataclass(frozen=True)
class KubeContext:
    """A context: a user and the API server it talks to."""

    name: str
    namespace: str | None
    cluster: KubeconfigEntry
    user: Mapping[str, Any] = field(repr=False)
    user_folder: Path = Path()

    @property
    def needs_plugin(self) -> bool:
        """Whether its credentials are what a program says; a token that stands next to it goes first, as in kubectl."""
        if self.user.get("auth-provider"):
            return True
        return bool(self.user.get("exec")) and not (self.user.get("token") or self.user.get("tokenFile"))


PARTS = ("contexts", "clusters", "users")


@dataclass(frozen=True)
class Kubeconfig:
    """All files of `KUBECONFIG` as one: of entries with one name the first counts."""

    current: str | None
    contexts: Mapping[str, KubeconfigEntry]
    clusters: Mapping[str, KubeconfigEntry]
    users: Mapping[str, KubeconfigEntry]

    def context(self, name: str) -> KubeContext:
        """That context, whole.

        Raises:
            BrokenKubeconfig: it names what is not there.
        """
        content = self.contexts[name].content
        user = content.get("user")
        found = _named(self.users, "users", user) if user else KubeconfigEntry({}, Path())
        cluster = _named(self.clusters, "clusters", content.get("cluster"))
        return KubeContext(name, content.get("namespace"), cluster, found.content, found.folder)


def read_kubeconfig(files: str) -> Kubeconfig | None:
    """Read the files; None when none of them exists.

    Raises:
        BrokenKubeconfig: one of them is no kubeconfig, or cannot be read.
    """
    current: str | None = None
    parts: dict[str, dict[str, KubeconfigEntry]] = {part: {} for part in PARTS}
    paths = [Path(each).expanduser() for each in files.split(os.pathsep) if each]
    there = [path for path in paths if path.exists()]
    for path in there:
        content = _content(path)
        for part, entries in parts.items():
            listed = content.get(part) or []
            if not isinstance(listed, list):
                raise BrokenKubeconfig(f"{path}: `{part}` is no list")
            for entry in listed:
                of = (entry.get(part.removesuffix("s")) or {}) if isinstance(entry, dict) else None
                if not isinstance(of, dict) or not isinstance(entry.get("name"), str):
                    raise BrokenKubeconfig(f"{path}: `{part}` has an entry without a name, or of another shape")
                entries.setdefault(entry["name"], KubeconfigEntry(of, path.absolute().parent))
        current = str(content.get("current-context") or current or "") or None
    return Kubeconfig(current, **parts) if there else None


def _content(path: Path) -> dict[str, Any]:
    """What a file holds; an error says where it is wrong, and never what stands there."""
    try:
        content = yaml.safe_load(read_text(path))
    except Unreadable as error:
        raise BrokenKubeconfig(f"{path}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}: not YAML at column {mark.column + 1}" if mark else f"{path}: not YAML"
        raise BrokenKubeconfig(where) from None
    # Also a number of thousands of digits, and lists within lists.
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BrokenKubeconfig(f"{path}: not YAML") from None
    if content is None:
        raise BrokenKubeconfig(f"{path}: an empty file")
    if not isinstance(content, dict) or not any(isinstance(content.get(part), list) for part in PARTS):
        raise BrokenKubeconfig(f"{path}: a file without contexts, clusters and users")
    return content


def credential_of(context: KubeContext, *, good_until: datetime | None) -> Credential:
    """What stands in the files now.

    Raises:
        BrokenKubeconfig, OSError: something that they name is not there.
    """
    cluster, user = context.cluster, KubeconfigEntry(context.user, context.user_folder)
    if "server" not in cluster.content:
        raise BrokenKubeconfig(f"the cluster of context {context.name} has no server")
    url = str(cluster.content["server"]).rstrip("/")
    files: list[str | None] = [None, None, None]
    if url.startswith("https"):
        files = [
            _file(cluster, "certificate-authority"),
            _file(user, "client-certificate"),
            _file(user, "client-key"),
        ]
    server = ApiServer(
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


def service_account_credential(folder: Path, environment: Mapping[str, str], *, good_until: datetime) -> Credential:
    """What the kubelet gives every pod.

    Raises:
        BrokenKubeconfig, OSError: it is not there, or empty.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise BrokenKubeconfig("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
    token, authority = (folder / "token").read_text(), folder / "ca.crt"
    if not token or not authority.read_text():
        raise BrokenKubeconfig(f"the token or the certificate in {folder} is empty")
    url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    server = ApiServer(
        url=url, ca_file=str(authority), proxy=_environments_proxy(url), fingerprint=_fingerprint(str(authority))
    )
    return Credential(server, f"Bearer {token}", good_until)


def _named(entries: Mapping[str, KubeconfigEntry], kind: str, name: object) -> KubeconfigEntry:
    if not isinstance(name, str) or name not in entries:
        raise BrokenKubeconfig(f"{kind} has no {name!r}")
    return entries[name]


def _authorization(user: KubeconfigEntry) -> str | None:
    content = user.content
    token = content.get("token")
    if not token and content.get("tokenFile"):
        token = (user.folder / content["tokenFile"]).read_text()
    if token:
        return f"Bearer {token}"
    if "username" in content and "password" in content:
        return "Basic " + base64.b64encode(f"{content['username']}:{content['password']}".encode()).decode()
    return None


def _file(entry: KubeconfigEntry, name: str) -> str | None:
    """The file that is named, or one with what stands in the entry itself: TLS reads files only."""
    inside = entry.content.get(f"{name}-data")
    if inside:
        return _written(base64.standard_b64decode(inside))
    if not entry.content.get(name):
        return None
    path = Path(os.path.normpath(entry.folder / entry.content[name]))
    if not path.is_file():
        raise BrokenKubeconfig(f"File does not exist: {path}")
    return str(path)


_writing = Lock()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Of this process, for its owner only; gone with it."""
    folder = tempfile.TemporaryDirectory(prefix="tidegate-")
    atexit.register(folder.cleanup)
    return folder


def _written(content: bytes) -> str:
    # Regions are read by threads of their own: without the lock one would use a file that another has only begun.
    with _writing:
        path = Path(_folder().name, hashlib.sha256(content).hexdigest())
        if not path.exists():
            path.write_bytes(content)
    return str(path)


def _fingerprint(*files: str | None) -> str:
    return hashlib.sha256(b"".join(Path(each).read_bytes() for each in files if each)).hexdigest()


def _environments_proxy(url: str) -> str | None:
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
