"""What the API server itself refuses, by ValidatingAdmissionPolicies in CEL. Kubernetes 1.30 or later.

Role and binding say which kinds an account may write, and cannot say what stands in them: the one who may create
Rollouts may run any pod of the namespace. A policy says it, in the API server's own process: there is no webhook that
could be away.

A region has two with `fleet.admission`: on Rollouts and AnalysisTemplates that tidegate writes, and on engines' pods
whoever makes them. They say whose images run, as which user, and that nothing of the node is shared; they do not look
at commands, arguments, variables and volumes. Nothing is demanded of a template that stays as it is, so that no policy
that was narrowed meanwhile keeps anybody from pausing or aborting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    ANALYSIS_TEMPLATES,
    NAME_OF_NAMESPACE,
    PODS,
    ROLLOUTS,
    Resource,
)
from rollouts.manifests.conventions import ENGINE, WEIGHTS, driver, guard
from rollouts.manifests.manifest import Place, Site, manifest
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

Demands = Mapping[str, str]
"""What has to hold, in CEL, by what the one who is refused reads."""

CONTAINERS = "variables.pod.containers + (has(variables.pod.initContainers) ? variables.pod.initContainers : [])"
"""Init containers are among the containers."""

HOST: Demands = {
    "nothing of the node's is shared: no network, port, process, memory or folder, and no privilege": (
        "!(has(variables.pod.hostNetwork) && variables.pod.hostNetwork) "
        "&& !(has(variables.pod.hostPID) && variables.pod.hostPID) "
        "&& !(has(variables.pod.hostIPC) && variables.pod.hostIPC) "
        "&& (!has(variables.pod.volumes) || variables.pod.volumes.all(v, !has(v.hostPath))) "
        "&& variables.containers.all(c, (!has(c.ports) || c.ports.all(p, !has(p.hostPort))) "
        "&& (!has(c.securityContext) || (!(has(c.securityContext.privileged) && c.securityContext.privileged) "
        "&& !(has(c.securityContext.capabilities) && has(c.securityContext.capabilities.add)))))"
    )
}


def policy_and_binding(
    site: Site | Place,
    what: str,
    resources: Iterable[Resource],
    demands: Demands,
    *,
    operations: tuple[str, ...] = ("CREATE", "UPDATE"),
    chosen_by: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[Json, Json]:
    """The policy, and the binding without which it is a text.

    A request that cannot be judged is refused: a field that is missing is no way past a demand on it. `what` makes its
    name, after the delivery's. The demands are about these kinds of objects in the site's namespace, if they have the
    labels `chosen_by`. `only` and `variables` are CEL by name: a request for which one of `only` does not hold is not
    the policy's business, and a later variable may use an earlier one.
    """
    rules = [
        {"apiGroups": [each.group], "apiVersions": ["*"], "operations": list(operations), "resources": [each.plural]}
        for each in resources
    ]
    chosen = {"objectSelector": {"matchLabels": dict(chosen_by)}} if chosen_by else {}
    of_namespace = {"matchLabels": {NAME_OF_NAMESPACE: site.namespace}}
    spec: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": {"namespaceSelector": of_namespace, "resourceRules": rules, **chosen},
        **{
            part: [{"name": name, "expression": expression} for name, expression in said.items()]
            for part, said in (("matchConditions", only), ("variables", variables))
            if said
        },
        "validations": [{"expression": holds, "message": message} for message, holds in demands.items()],
    }
    policy = manifest(ADMISSION_POLICIES, f"{site.name}-{what}", site, spec=spec)
    bound: Json = {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    return policy, manifest(ADMISSION_BINDINGS, f"{site.name}-{what}", site, spec=bound)


def images_from(repositories: Iterable[str]) -> str:
    """A pattern of images by digest: of these repositories, as the trust file names them; of any when there is none."""
    each_below = (f"{re.escape(each[:-1])}[^@]+" if each.endswith("/*") else re.escape(each) for each in repositories)
    return f"^({'|'.join(each_below) or '[^@]+'})(:[^@/]+)?@sha256:[0-9a-f]{{64}}$"


def cel(word: str | Iterable[str]) -> str:
    """A string or a list of strings, as CEL writes it."""
    return json.dumps(word if isinstance(word, str) else list(word))


def user_of(namespace: str, account: str) -> str:
    """What an API server calls a service account."""
    return f"system:serviceaccount:{namespace}:{account}"


def policy_names(site: Site) -> tuple[str, ...]:
    """Of the policies that hold tidegate to its own objects, and of their bindings; none without `fleet.admission`."""
    return tuple(each["metadata"]["name"] for each in admission(site)[::2])


def admission(site: Site) -> tuple[Json, ...]:
    """The policies of one delivery, each with its binding; none without `fleet.admission`."""
    if not site.fleet.admission:
        return ()
    own = (user_of(site.namespace, account(site.name)) for account in (driver, guard))
    writers = f"request.userInfo.username in {cel((*own, *site.release.accounts))}"
    same = "!has(object.spec.template) || (oldObject != null && has(oldObject.spec.template) "
    template = {
        "pod": "object.spec.template.spec",
        "containers": CONTAINERS,
        "same": f"{same}&& oldObject.spec.template == object.spec.template)",
    }
    kinds, of_writes, of_pods = (ROLLOUTS, ANALYSIS_TEMPLATES), _of_writes(site), _of_pods(site)
    pod = {"pod": "object.spec", "containers": CONTAINERS}
    return (
        *policy_and_binding(site, "rollouts", kinds, of_writes, only={"tidegate": writers}, variables=template),
        *policy_and_binding(
            site, "pods", (PODS,), of_pods, operations=("CREATE",), chosen_by=site.selector, variables=pod
        ),
    )


def _of_writes(site: Site) -> Demands:
    """Neither kind starts a pod but by the Rollout's template, whose pods the other policy knows by their label."""
    label = cel(DELIVERY)
    labelled = (
        f"has(object.spec.template.metadata.labels) && {label} in object.spec.template.metadata.labels "
        f"&& object.spec.template.metadata.labels[{label}] == {cel(site.name)}"
    )
    template: Demands = {
        f"engines have the label {DELIVERY}={site.name}, by which policies know them": labelled,
        _images_are(site): f"variables.containers.all(c, c.image.matches({_images(site)}))",
        **_user(site),
        **HOST,
    }
    return {
        f"tidegate writes the Rollout {site.name}, whose template is its own": (
            f'object.kind != "Rollout" || (object.metadata.name == {cel(site.name)} && !has(object.spec.workloadRef))'
        ),
        "no step starts an experiment or a plugin": (
            'object.kind != "Rollout" || !has(object.spec.strategy.canary) '
            "|| !has(object.spec.strategy.canary.steps) "
            "|| object.spec.strategy.canary.steps.all(s, !has(s.experiment) && !has(s.plugin))"
        ),
        "an analysis asks Prometheus, and starts no pods": (
            'object.kind != "AnalysisTemplate" || object.spec.metrics.all(m, dyn(m.provider).all(k, k == "prometheus"))'
        ),
        **{message: f"variables.same || ({holds})" for message, holds in template.items()},
    }


def _of_pods(site: Site) -> Demands:
    """A mesh may have put containers of its own next to the engine."""
    ours = f"!(c.name in {cel((ENGINE, WEIGHTS))}) || c.image.matches({_images(site)})"
    engine = f"variables.pod.containers.exists_one(c, c.name == {cel(ENGINE)})"
    return {_images_are(site): f"{engine} && variables.containers.all(c, {ours})", **_user(site), **HOST}


def _images(site: Site) -> str:
    return cel(images_from(site.release.repositories))


def _images_are(site: Site) -> str:
    allowed = ", ".join(site.release.repositories) or "a repository"
    return f"engines' images are named by digest and come from {allowed}"


def _user(site: Site) -> Demands:
    return {
        f"engines run as the service account {site.account}, without its token, and not as root": (
            "has(variables.pod.serviceAccountName) "
            f"&& variables.pod.serviceAccountName == {cel(site.account)} "
            "&& has(variables.pod.automountServiceAccountToken) && !variables.pod.automountServiceAccountToken "
            "&& has(variables.pod.securityContext) && has(variables.pod.securityContext.runAsNonRoot) "
            "&& variables.pod.securityContext.runAsNonRoot "
            "&& !(has(variables.pod.securityContext.runAsUser) && variables.pod.securityContext.runAsUser == 0) "
            "&& variables.containers.all(c, !has(c.securityContext) "
            "|| (!(has(c.securityContext.runAsNonRoot) && !c.securityContext.runAsNonRoot) "
            "&& !(has(c.securityContext.runAsUser) && c.securityContext.runAsUser == 0)))"
        )
    }
