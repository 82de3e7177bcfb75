"""What the API server itself writes into an object, and what it does not let a writer change.

Pure rules over bodies; API conventions, "Metadata", and `k8s.io/apiserver/pkg/registry/rest`.
"""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import Any

from fakes.kube.kinds import Kind
from fakes.kube.refusal import Cause, bad_request, invalid

Json = dict[str, Any]

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_SYSTEM = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
"""Only the server writes these; what a writer says in their place is ignored."""


def timestamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as `metav1.Time` is written."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def check_kind(kind: Kind, body: Json) -> None:
    """The body must be what the URL says.

    Raises:
        Refusal: another kind or version (400).
    """
    if body.get("apiVersion", kind.api_version) != kind.api_version or body.get("kind", kind.kind) != kind.kind:
        said = f"{body.get('kind')} in version {body.get('apiVersion')}"
        raise bad_request(f"the object provided is unrecognized (got {said}; expected {kind.kind})")


def placed(kind: Kind, body: Json, namespace: str) -> Json:
    """The body with type and namespace of the URL.

    Raises:
        Refusal: the body names another namespace (400), or is of another kind (400).
    """
    check_kind(kind, body)
    metadata = dict(body.get("metadata") or {})
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata} | rest


def born(kind: Kind, body: Json, *, now: datetime, seed: int) -> Json:
    """A new object: named, with a uid and generation 1, without a status where that has its own path.

    Raises:
        Refusal: no name, or none that a URL can carry (422).
    """
    metadata = body["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + format(seed % 36**5, "05x")[-5:]
    _check_name(kind, metadata.get("name", ""))
    metadata["uid"] = str(uuid.UUID(int=seed, version=4))
    metadata["creationTimestamp"] = timestamp(now)
    metadata["generation"] = 1
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
        metadata.pop(key, None)
    if kind.status:
        body.pop("status", None)
    return body


def _check_name(kind: Kind, name: str) -> None:
    if not name:
        cause = Cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
        raise invalid(kind.kind, kind.group, name, (cause,))
    if len(name) > 253 or not _SUBDOMAIN.match(name):
        cause = Cause("FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}', "metadata.name")
        raise invalid(kind.kind, kind.group, name, (cause,))


def rewritten(kind: Kind, old: Json, new: Json) -> Json:
    """A write to the main resource: the status stays as it was, and a change of what is wished moves the generation.

    Generation follows `rest.BeforeUpdate` and the custom resources' strategy: any change outside metadata counts,
    and outside status where that has its own path.
    """
    result = {key: value for key, value in new.items() if key != "status" or not kind.status}
    if kind.status and "status" in old:
        result["status"] = old["status"]
    result["metadata"] = kept(old["metadata"], new.get("metadata") or {})
    if wished(kind, result) != wished(kind, old):
        result["metadata"]["generation"] = int(old["metadata"].get("generation", 0)) + 1
    return result


def wished(kind: Kind, body: Json) -> Json:
    """What a person or a controller asks for in it."""
    ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if kind.status else set())
    return {key: value for key, value in body.items() if key not in ignored}


def reported(old: Json, new: Json) -> Json:
    """A write to `/status`: nothing but the status is taken (custom resources' `statusStrategy`)."""
    result = {key: value for key, value in old.items() if key != "status"}
    return result | ({"status": new["status"]} if new.get("status") is not None else {})


def kept(old: Json, new: Json) -> Json:
    """New metadata with what only the server writes as it was."""
    result = {key: value for key, value in new.items() if key not in _SYSTEM}
    result |= {key: old[key] for key in _SYSTEM if key in old}
    result["name"] = old["name"]
    if "namespace" in old:
        result["namespace"] = old["namespace"]
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not result.get(key):
            result.pop(key, None)  # an empty map or list is not stored
    result.pop("managedFields", None)
    if "managedFields" in old:
        result["managedFields"] = old["managedFields"]
    result["resourceVersion"] = old["resourceVersion"]
    return result


def without_status(config: Json) -> Json:
    """What of an applied configuration belongs to the main resource (`resetFields` of the strategy)."""
    return {key: value for key, value in config.items() if key != "status"}


def status_only(config: Json) -> Json:
    """What of an applied configuration belongs to `/status`."""
    identity = {key: value for key, value in config["metadata"].items() if key in ("name", "namespace")}
    kept_parts = {key: value for key, value in config.items() if key in ("apiVersion", "kind", "status")}
    return kept_parts | {"metadata": identity}
