"""What all Kubernetes objects have: a kind, a name that the API server accepts, and labels."""

from __future__ import annotations

import hashlib
import re

from slo.model import KubernetesNames

Manifest = dict[str, object]

_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FITS = re.compile(rf"{_WORD}([.]{_WORD})*")
_LONGEST = 63
_DIGEST = 6


def manifest(api_version: str, kind: str, names: KubernetesNames, spec: Manifest) -> Manifest:
    """The object, without the parts of its metadata that are empty."""
    metadata = {key: value for key, value in names.model_dump().items() if value}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def object_name(identity: str, suffix: str = "") -> str:
    """A name for what `identity` names: itself where that is one, else with a digest that keeps it unique.

    A suffix is always the last word, so two identities never share a name under any suffixes of one length or other.
    """
    tail = f"-{suffix}" if suffix else ""
    room = _LONGEST - len(tail)
    if len(identity) <= room and _FITS.fullmatch(identity):
        return identity + tail
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST]
    readable = re.sub(r"[^a-z0-9]+", "-", identity.lower())[: room - _DIGEST - 1].strip("-")
    return f"{readable}-{digest}{tail}".lstrip("-")
