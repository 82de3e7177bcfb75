"""A kubeconfig for fake clusters, as `kubectl` and tidegate read it: a context for each region."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from fakes.kube.access import TOKEN

Json = dict[str, Any]


def kubeconfig(servers: Mapping[str, str], authority: bytes, *, namespace: str = "default", token: str = TOKEN) -> Json:
    """Contexts by region, the first one current; everybody trusts the same authority and has the same token."""
    trusted = {"certificate-authority-data": b64encode(authority).decode()}
    user = {"name": "tidegate", "user": {"token": token}}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url} | trusted} for name, url in servers.items()],
        "users": [user],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": user["name"], "namespace": namespace}}
            for name in servers
        ],
        "current-context": next(iter(servers), ""),
    }


def write_kubeconfig(path: Path, servers: Mapping[str, str], authority: bytes, *, namespace: str = "default") -> Path:
    """Write it, readable to its owner only, as a file with a token should be."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(kubeconfig(servers, authority, namespace=namespace), sort_keys=False))
    return path
