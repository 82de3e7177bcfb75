"""What the API server takes from tidegate: its own objects, engines, and nothing that would run anything else.

Each demand is on what an account writes, or on an engine's pod when it is made. Nothing is demanded of a template that
stays as it is, so that no policy that was narrowed meanwhile keeps anybody from pausing or aborting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rollouts.kube.model import Resource
from rollouts.kube.resources import DEPLOYMENTS, LEASES, PODS, ROLLOUTS, SIGSTORE_POLICIES
from rollouts.manifests.admission import AdmissionPolicy, Validation, cel_list, cel_string, policy_and_binding
from rollouts.manifests.conventions import (
    ENGINE,
    WEIGHTS,
    canary_service,
    cluster_wide,
    driver,
    guard,
    prometheus_credentials,
    samples_request,
    stable_service,
    warm_pool,
)
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.access import written_objects
from rollouts.manifests.objects.engines.demands import (
    CONTAINERS,
    HARDENED,
    HOST,
    NO_FOLDERS,
    NO_PRIVILEGE,
    account,
    commands,
    image,
    images_from,
    prebuilt_commands,
    signed,
    volumes,
)
from rollouts.manifests.objects.prometheus import trigger_authentication
from rollouts.manifests.spec import Signatures
from tidegate.core.errors import UsageError
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY


class AdmissionScope(Value):
    """Whom the policies are about, and what they let in, besides what the fleet says itself."""

    repositories: tuple[str, ...] = ()
    """That engines may come from, as the trust file says: REGISTRY/REPOSITORY, or REGISTRY/PATH/*. Any when empty."""
    accounts: tuple[str, ...] = ()
    """User names that act as tidegate here, besides the driver's and the guard's."""


def user_of(namespace: str, account: str) -> str:
    """What an API server calls a service account."""
    return f"system:serviceaccount:{namespace}:{account}"


def admission(site: Site, admitted: AdmissionScope) -> tuple[Json, ...]:
    """The policies of one delivery, each with its binding."""
    return tuple(part for policy in policies(site, admitted) for part in policy_and_binding(policy))


def policies(site: Site, admitted: AdmissionScope) -> Iterator[AdmissionPolicy]:
    """On what tidegate writes, and on engines' pods the one who makes them."""
    own = (user_of(site.fleet.namespace, account(site.name)) for account in (driver, guard))
    accounts = (*own, *admitted.accounts)
    tidegate = {"tidegate": f"request.userInfo.username in {cel_list(accounts)}"}
    yield _policy(site, "objects", _objects(site), only=tidegate, demands=_of_objects(site))
    demands = tuple(_rollout(site, admitted))
    yield _policy(site, "rollouts", (ROLLOUTS,), only=tidegate, variables=_template(), demands=demands)
    if site.fleet.warm_pool:
        demands = tuple(_placeholders(site, site.fleet.warm_pool.image))
        yield _policy(site, "warm-pool", (DEPLOYMENTS,), only=tidegate, variables=_template(), demands=demands)
    yield _policy(
        site,
        "pods",
        (PODS,),
        operations=("CREATE",),
        chosen_by=site.selector,
        variables={"pod": "object.spec", "containers": CONTAINERS},
        demands=_of_pods(site, admitted),
    )


def _template() -> dict[str, str]:
    """Variables of a policy on objects with a pod template."""
    same = "oldObject != null && has(oldObject.spec.template) && oldObject.spec.template == object.spec.template"
    return {"pod": "object.spec.template.spec", "containers": CONTAINERS, "same": same}


def _policy(site: Site, what: str, resources: tuple[Resource, ...], **parts: object) -> AdmissionPolicy:
    name = cluster_wide(site.fleet.namespace, f"{site.name}-{what}")
    told = {"name": name, "namespace": site.fleet.namespace, "labels": {**MANAGED_BY, DELIVERY: site.name}}
    return AdmissionPolicy.model_validate({**told, "resources": resources, **parts})


def _objects(site: Site) -> tuple[Resource, ...]:
    """What the driver's Role lets it create, but for what pods are made of."""
    return (*(each for each in written_objects(site) if each not in {ROLLOUTS, DEPLOYMENTS}), LEASES)


def _of_objects(site: Site) -> tuple[Validation, ...]:
    name, label = cel_string(site.name), cel_string(DELIVERY)
    services = cel_list((stable_service(site.name), canary_service(site.name)))
    return (
        Validation(
            holds=f"[object, oldObject].all(o, o == null || (has(o.metadata.labels) "
            f"&& {label} in o.metadata.labels && o.metadata.labels[{label}] == {name}))",
            message=f"tidegate writes objects with the label {DELIVERY}={site.name} alone",
        ),
        Validation(
            holds=f"object.metadata.name == {name} || object.metadata.name.startsWith({cel_string(site.name + '-')}) "
            f"|| object.metadata.name.startsWith({cel_string(site.name + '.')})"
            + (f" || object.metadata.name == {cel_string(site.route_name)}" if site.fleet.gateway.route else ""),
            message=f"tidegate writes objects that are named after {site.name}",
        ),
        Validation(
            holds='object.kind != "Service" || ((!has(object.spec.type) || object.spec.type == "ClusterIP") '
            "&& (!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0))",
            message="Services have an address inside the cluster and no other",
        ),
        *_requests_for_samples(site),
        *_analyses(site),
        *_routes(services),
        Validation(
            holds='object.kind != "PodMonitor" || object.spec.podMetricsEndpoints.all(e, !has(e.authorization) '
            "&& !has(e.basicAuth) && !has(e.oauth2) && !has(e.bearerTokenSecret) && !has(e.tlsConfig))",
            message="a PodMonitor names no Secret",
        ),
        Validation(
            holds="!has(object.spec) || !has(object.spec.scaleTargetRef) || (object.spec.scaleTargetRef.name == "
            f"{name} && (!has(object.spec.triggers) || object.spec.triggers.all(t, {_trigger(site)})))",
            message=f"an autoscaler is of the Rollout {site.name}, and names no credentials"
            + (" but Prometheus'" if trigger_authentication(site) else ""),
        ),
    )


def _requests_for_samples(site: Site) -> tuple[Validation, ...]:
    """Anyone who may create ConfigMaps could otherwise say whose signatures engines believe, where nobody does yet."""
    if not site.samples:
        return ()
    name = samples_request(site.name)
    return (
        Validation(
            holds=f'object.kind != "ConfigMap" || object.metadata.name == {cel_string(name)}',
            message=f"the one ConfigMap is {name}, which asks engines to keep samples",
        ),
    )


def _trigger(site: Site) -> str:
    """Whether a trigger `t` of an autoscaler hands credentials to no other than the spec's Prometheus."""
    if trigger_authentication(site) is None:
        return "!has(t.authenticationRef)"
    named, address = cel_string(prometheus_credentials(site.name)), cel_string(site.prometheus.for_keda.url)
    return (
        f"!has(t.authenticationRef) || (t.authenticationRef.name == {named} "
        f"&& has(t.metadata.serverAddress) && t.metadata.serverAddress == {address})"
    )


def _analyses(site: Site) -> tuple[Validation, ...]:
    endpoint = site.prometheus.for_rollouts
    secrets = {source.secret.name for _, source in endpoint.secrets() if source.secret}
    if endpoint.auth and endpoint.auth.basic and endpoint.auth.basic.header:
        secrets.add(endpoint.auth.basic.header.name)
    theirs = (
        f"|| (object.spec.args.all(a, !has(a.valueFrom) || (has(a.valueFrom.secretKeyRef) "
        f"&& a.valueFrom.secretKeyRef.name in {cel_list(sorted(secrets))})) && object.spec.metrics.all(m, "
        f"m.provider.prometheus.address == {cel_string(endpoint.url)}))"
    )
    return (
        Validation(
            holds='object.kind != "AnalysisTemplate" || object.spec.metrics.all(m, '
            'dyn(m.provider).all(k, k == "prometheus"))',
            message="an analysis asks Prometheus, and starts no pods",
        ),
        Validation(
            holds='object.kind != "AnalysisTemplate" || !has(object.spec.args) '
            f"|| object.spec.args.all(a, !has(a.valueFrom)){f' {theirs}' if secrets else ''}",
            message=f"an analysis reads no Secret{' but those of Prometheus, for it alone' if secrets else ''}",
        ),
    )


def _routes(services: str) -> tuple[Validation, ...]:
    return (
        Validation(
            holds='object.kind != "HTTPRoute" || object.spec.rules.all(r, (!has(r.backendRefs) '
            f"|| r.backendRefs.all(b, b.name in {services} && !has(b.namespace))) && (!has(r.filters) "
            '|| r.filters.all(f, f.type == "RequestMirror" && f.requestMirror.backendRef.name in '
            f"{services} && !has(f.requestMirror.backendRef.namespace))))",
            message="a route leads to the delivery's own Services",
        ),
        Validation(
            holds='object.kind != "VirtualService" || (has(object.spec.http) && !has(object.spec.tcp) '
            "&& !has(object.spec.tls) && object.spec.http.all(h, (!has(h.route) "
            f"|| h.route.all(d, d.destination.host in {services})) && (!has(h.mirror) || h.mirror.host in {services}) "
            f"&& (!has(h.mirrors) || h.mirrors.all(m, m.destination.host in {services})) && !has(h.redirect)))",
            message="a route leads to the delivery's own Services",
        ),
    )


def _rollout(site: Site, admitted: AdmissionScope) -> Iterator[Validation]:
    name = cel_string(site.name)
    yield Validation(
        holds=f"object.metadata.name == {name} && !has(object.spec.workloadRef)",
        message=f"tidegate writes the Rollout {site.name}, whose template is its own",
    )
    yield Validation(
        holds="!has(object.spec.strategy.canary) || !has(object.spec.strategy.canary.steps) "
        "|| object.spec.strategy.canary.steps.all(s, !has(s.experiment) && !has(s.plugin))",
        message="no step starts an experiment or a plugin",
    )
    yield from _engines(site, admitted, "template")


def _engines(site: Site, admitted: AdmissionScope, path: str) -> Iterator[Validation]:
    """Of the pod template at `path`, below `spec`, unless it stays as it is."""
    name, label = cel_string(site.name), cel_string(DELIVERY)
    yield _changed(
        Validation(
            holds=f"has(object.spec.{path}.metadata.labels) "
            f"&& {label} in object.spec.{path}.metadata.labels "
            f"&& object.spec.{path}.metadata.labels[{label}] == {name}",
            message=f"engines have the label {DELIVERY}={site.name}, by which the network policy knows them",
        )
    )
    for each in (
        image(site, admitted.repositories),
        account(site),
        HOST,
        volumes(site),
        HARDENED,
        *(prebuilt_commands(site, site.release.launch) if site.release.launch else commands(site)),
        *signed(site),
    ):
        yield _changed(each)


def _changed(demand: Validation) -> Validation:
    return Validation(holds=f"variables.same || ({demand.holds})", message=demand.message)


def _placeholders(site: Site, image: str) -> Iterator[Validation]:
    own = "!has(variables.pod.serviceAccountName) && !has(variables.pod.volumes)"
    yield Validation(
        holds=f"object.metadata.name == {cel_string(warm_pool(site.name))} && {own} "
        "&& has(variables.pod.automountServiceAccountToken) && !variables.pod.automountServiceAccountToken",
        message=f"the one Deployment is {warm_pool(site.name)}, whose pods have neither account nor volumes",
    )
    yield Validation(
        holds=f"variables.containers.all(c, c.image == {cel_string(image)} && !has(c.command) && !has(c.args) "
        "&& !has(c.env) && !has(c.envFrom))",
        message=f"placeholders are {image}, which does nothing",
    )
    yield HOST
    yield HARDENED


def _of_pods(site: Site, admitted: AdmissionScope) -> tuple[Validation, ...]:
    """Of the engine itself and of its node; a mesh may have put containers and volumes of its own next to it."""
    pattern = cel_string(images_from(admitted.repositories))
    allowed = ", ".join(admitted.repositories) or "a repository"
    return (
        Validation(
            holds=f"variables.pod.containers.exists_one(c, c.name == {cel_string(ENGINE)}) "
            f"&& variables.containers.all(c, !(c.name in {cel_list((ENGINE, WEIGHTS))}) || c.image.matches({pattern}))",
            message=f"engines' images are named by digest and come from {allowed}",
        ),
        Validation(
            holds="has(variables.pod.serviceAccountName) "
            f"&& variables.pod.serviceAccountName == {cel_string(site.account)}",
            message=f"whatever is taken for an engine of {site.name} runs as its service account",
        ),
        HOST,
        NO_FOLDERS,
        NO_PRIVILEGE,
    )


_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)
_HUB, _HUB_AS_MATCHED = "docker.io/", "index.docker.io/"


def image_policy(site: Site, admitted: AdmissionScope) -> tuple[Json, ...]:
    """The policy, where the fleet asks for it: one of the trust file's keys has to have signed what is from its
    repositories.

    It says nothing of kinds and labels (`match`): the controller knows ReplicaSets by a misspelt name, and so would
    find no policy for those of engines, which it refuses.

    Raises:
        UsageError: the trust file names no keys or no repositories. Without the latter the policy would be about the
            images of everybody in the cluster.
    """
    if site.fleet.signatures is not Signatures.SIGSTORE:
        return ()
    keys = _KEY.findall(site.release.public_keys)
    if not keys or not admitted.repositories:
        lacking = " and ".join(each for each, there in (("keys", keys), ("images", admitted.repositories)) if not there)
        raise UsageError(
            f"fleet.signatures: {site.fleet.signatures} verifies nothing: `engines` of the trust file has no {lacking}",
            hint="name whose signatures are asked for (keys) and of what (images), or leave the field out",
        )
    spec: Json = {
        "mode": "enforce",
        "images": [{"glob": _glob(each)} for each in admitted.repositories],
        "authorities": [_authority(number, key) for number, key in enumerate(keys, 1)],
    }
    return (manifest(SIGSTORE_POLICIES, f"{site.name}-signatures", site, spec=spec),)


def _authority(number: int, key: str) -> Json:
    """One of them suffices. Our signatures are in no transparency log, and an empty `ctlog` asks for none."""
    return {"name": f"key-{number}", "key": {"data": f"{key}\n"}, "ctlog": {}}


def _glob(repository: str) -> str:
    """All images of a repository, or of those below a path.

    A glob is compared with name and digest, and may have no `@`: that of a repository is about others too whose names
    begin with its own. Docker Hub has another name there.
    """
    name = repository.replace(_HUB, _HUB_AS_MATCHED, 1) if repository.startswith(_HUB) else repository
    return f"{name}*"
