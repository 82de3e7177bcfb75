"""What a WorkflowTemplate needs around it: who its pods are, the spec's files, the notes of what was built."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.workflow import conventions as names
from pipelines.workflow.blueprint import Blueprint
from pipelines.workflow.pods import key_of
from rollouts.kube.model import Json, Resource
from rollouts.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from rollouts.manifests.conventions import DELIVERY, MANAGED_BY, cluster_wide, driver
from tidegate.core.errors import UsageError

METADATA_SERVERS = {"0.0.0.0/0": "169.254.169.254/32", "::/0": "fd00:ec2::254/128"}
"""Where clouds hand out a node's credentials, among all addresses of IPv4 and IPv6. No more than these: a cluster's
own DNS may be at a link-local address."""

LARGEST = 1024 * 1024
"""Bytes of a ConfigMap, as API servers limit them."""


def surroundings(blueprint: Blueprint) -> Iterator[Json]:
    """In the order in which they can be applied.

    Raises:
        UsageError: the files do not fit into a ConfigMap.
    """
    name, account = blueprint.name, names.account(blueprint.name)
    yield _object(blueprint, SERVICE_ACCOUNTS, account)
    # Pods tell the controller their outputs in such objects.
    rule = {"apiGroups": ["argoproj.io"], "resources": ["workflowtaskresults"], "verbs": ["create", "patch"]}
    yield _object(blueprint, ROLES, account, rules=[rule])
    yield _bound(blueprint, ROLE_BINDINGS, account, ROLES, account)
    yield from _rights_here(blueprint)
    yield _network_policy(blueprint)
    yield _object(blueprint, CONFIG_MAPS, names.files(name), data=_files(blueprint))
    if blueprint.settings.build:
        kind = {"workflows.argoproj.io/configmap-type": "Cache"}
        yield _object(blueprint, CONFIG_MAPS, names.memory(name), labels=kind)


def _rights_here(blueprint: Blueprint) -> Iterator[Json]:
    """In the cluster that is a region itself, pods act as the driver that `rollout render --part setup` made."""
    if all(region.context for region in blueprint.fleet.regions.values()):
        return
    account, role = names.account(blueprint.name), driver(blueprint.name)
    namespace = blueprint.fleet.namespace
    yield _bound(blueprint, ROLE_BINDINGS, f"{account}-here", ROLES, role, namespace=namespace)
    name = cluster_wide(blueprint.namespace, account)
    yield _bound(blueprint, CLUSTER_ROLE_BINDINGS, name, CLUSTER_ROLES, cluster_wide(namespace, role), namespace=None)


def _network_policy(blueprint: Blueprint) -> Json:
    """Nobody asks a step anything. What steps ask is written in the spec only in part, so that it is limited by blocks
    of addresses; a build loads a model that somebody else made, and has no business with its node's credentials.
    """
    blocks: list[Json] = [{"cidr": block} for block in blueprint.settings.egress_to] or [
        {"cidr": address, "except": [server]} for address, server in METADATA_SERVERS.items()
    ]
    spec = {
        "podSelector": {"matchLabels": {names.STEPS_OF: blueprint.name}},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{"to": [{"namespaceSelector": {}}, *({"ipBlock": block} for block in blocks)]}],
    }
    return _object(blueprint, NETWORK_POLICIES, names.account(blueprint.name), spec=spec)


def _files(blueprint: Blueprint) -> dict[str, str]:
    data = {key_of(place): text for place, text in blueprint.files.items()}
    size = sum(len(text.encode()) for text in data.values())
    if size > LARGEST:
        raise UsageError(
            f"the spec and the files that it names have {size:,} bytes; a ConfigMap holds {LARGEST:,}",
            hint="name a smaller golden set or fewer prompts",
        )
    return data


def _bound(
    blueprint: Blueprint, kind: Resource, name: str, role_kind: Resource, role: str, *, namespace: str | None = ""
) -> Json:
    account = names.account(blueprint.name)
    return _object(
        blueprint,
        kind,
        name,
        namespace=namespace,
        roleRef={"apiGroup": ROLES.group, "kind": role_kind.kind, "name": role},
        subjects=[{"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": blueprint.namespace}],
    )


def _object(
    blueprint: Blueprint,
    kind: Resource,
    name: str,
    *,
    namespace: str | None = "",
    labels: dict[str, str] | None = None,
    **parts: object,
) -> Json:
    """`namespace`: the workflow's when it is empty; None for objects that have none."""
    placed = {} if namespace is None else {"namespace": namespace or blueprint.namespace}
    metadata = {"name": name, **placed, "labels": {**MANAGED_BY, DELIVERY: blueprint.name, **(labels or {})}}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}
