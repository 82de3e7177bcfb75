"""spec -> every object of its workflow: the template, its supporting resources, the admission policies.

Reads the files that the spec names; asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.events.artifacts import laid_out
from pipelines.plan.planner import steps_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from pipelines.spec.workflow import account_of
from pipelines.workflow import model as names
from pipelines.workflow.model import WorkflowInput
from pipelines.workflow.template import workflow_template
from rollouts.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    WORKFLOWS,
    Resource,
)
from rollouts.manifests.admission import CONTAINERS, HOST, cel, policy_and_binding, user_of
from rollouts.manifests.conventions import cluster_wide, driver
from rollouts.manifests.manifest import Place
from rollouts.manifests.objects.network import METADATA_SERVERS
from rollouts.manifests.spec import ClusterFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY, config_map_key

OF_ARGO = ("init", "wait")
"""Containers that Argo Workflows puts next to ours; their image is its controller's to say."""


def admission(blueprint: WorkflowInput) -> tuple[Json, ...]:
    """Both policies, each with its binding: on Workflows that accounts of the namespace make, and on steps' pods."""
    place = Place(blueprint.name, blueprint.namespace)
    settings, here, account = blueprint.settings, user_of(blueprint.namespace, ""), account_of(blueprint.name)
    images = dict.fromkeys((settings.image, *((settings.build.image,) if settings.build else ())))
    of_workflows = {
        "a service account of this namespace runs a WorkflowTemplate with arguments, and changes nothing of it": (
            'has(object.spec) && dyn(object.spec).all(k, k in ["workflowTemplateRef", "arguments"]) '
            "&& has(object.spec.workflowTemplateRef) && !(has(object.spec.workflowTemplateRef.clusterScope) "
            "&& object.spec.workflowTemplateRef.clusterScope)"
        )
    }
    of_steps = {
        f"a step runs {' or '.join(images)}": (
            f"variables.containers.all(c, c.name in {cel(OF_ARGO)} || c.image in {cel(images)})"
        ),
        **HOST,
    }
    as_a_step = f"has(object.spec.serviceAccountName) && object.spec.serviceAccountName == {cel(account)}"
    return (
        *policy_and_binding(
            place,
            "workflows",
            (WORKFLOWS,),
            of_workflows,
            operations=("CREATE",),
            only={"accounts-of-here": f"request.userInfo.username.startsWith({cel(here)})"},
        ),
        *policy_and_binding(
            place,
            "steps",
            (PODS,),
            of_steps,
            operations=("CREATE",),
            only={"as-a-step": as_a_step},
            variables={"pod": "object.spec", "containers": CONTAINERS},
        ),
    )


LARGEST = 1024 * 1024
"""Bytes of a ConfigMap, as API servers limit them."""


def supporting_resources(blueprint: WorkflowInput) -> Iterator[Json]:
    """In the order in which they can be applied.

    Raises:
        UsageError: the files do not fit into a ConfigMap.
    """
    name, account = blueprint.name, account_of(blueprint.name)
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


def _rights_here(blueprint: WorkflowInput) -> Iterator[Json]:
    """In the cluster that is a region itself, pods act as the driver that `rollout render --part setup` made."""
    if all(region.context for region in blueprint.fleet.regions.values()):
        return
    account, role = account_of(blueprint.name), driver(blueprint.name)
    namespace = blueprint.fleet.namespace
    yield _bound(blueprint, ROLE_BINDINGS, f"{account}-here", ROLES, role, namespace=namespace)
    name = cluster_wide(blueprint.namespace, account)
    yield _bound(blueprint, CLUSTER_ROLE_BINDINGS, name, CLUSTER_ROLES, cluster_wide(namespace, role), namespace=None)


def _network_policy(blueprint: WorkflowInput) -> Json:
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
    return _object(blueprint, NETWORK_POLICIES, account_of(blueprint.name), spec=spec)


def _files(blueprint: WorkflowInput) -> dict[str, str]:
    data = {config_map_key(place): text for place, text in blueprint.files.items()}
    size = sum(len(text.encode()) for text in data.values())
    if size > LARGEST:
        raise UsageError(
            f"the spec and the files that it names have {size:,} bytes; a ConfigMap holds {LARGEST:,}",
            hint="name a smaller golden set or fewer prompts",
        )
    return data


def _bound(
    blueprint: WorkflowInput, kind: Resource, name: str, role_kind: Resource, role: str, *, namespace: str | None = ""
) -> Json:
    account = account_of(blueprint.name)
    return _object(
        blueprint,
        kind,
        name,
        namespace=namespace,
        roleRef={"apiGroup": ROLES.group, "kind": role_kind.kind, "name": role},
        subjects=[{"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": blueprint.namespace}],
    )


def _object(
    blueprint: WorkflowInput,
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


def blueprint_of(spec: Delivery, spec_path: Path) -> WorkflowInput:
    """What a workflow of this spec is made of.

    Raises:
        UsageError: it has no `workflow`, or its fleet is on this machine.
    """
    if spec.workflow is None or not isinstance(spec.fleet, ClusterFleetSpec):
        raise UsageError("this spec has no `workflow`", hint="see `workflow` in the documentation of the spec")
    spec_file, files = laid_out(spec_path, spec)
    return WorkflowInput(
        spec=spec,
        fleet=spec.fleet,
        settings=spec.workflow,
        steps=steps_of(spec, prompts=len(golden_set(spec, spec_path.parent))),
        spec_file=spec_file,
        files={place: path.read_text(encoding="utf-8") for place, path in files.items()},
    )


def rendered(blueprint: WorkflowInput) -> tuple[Json, ...]:
    """The objects in the order in which they can be applied; the WorkflowTemplate is the last."""
    return (*supporting_resources(blueprint), *admission(blueprint), workflow_template(blueprint))
