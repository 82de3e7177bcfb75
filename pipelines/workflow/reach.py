"""Whether pods can reach an address: of MLflow, and of the files that it keeps. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

SERVER = (
    "an MLflow server as pods reach it, such as http://mlflow.mlflow:5000, "
    "started with `--artifacts-destination` so that it hands out files itself"
)
"""What would be right."""
FILES = frozenset({"", "file", "sqlite"})
"""Schemes of what lies on the disk of one machine; a path has none."""


def out_of_reach(address: str) -> str | None:
    """Why no pod can reach it; None when it may."""
    parts = urlsplit(address)
    if parts.scheme in FILES:
        return "a file of one machine"
    host = parts.hostname or ""
    if host == "localhost" or host.endswith(".localhost") or _is_own(host):
        return "in a pod that is the pod itself"
    return None


def _is_own(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # What a server listens on when it listens everywhere is no address to ask.
    return address.is_loopback or address.is_unspecified
