"""What the API server takes from tidegate: its own objects, engines, and nothing that would run anything else.

Each demand is on what an account writes, or on an engine's pod when it is made. Nothing is demanded of a template that
stays as it is, so that no policy that was narrowed meanwhile keeps anybody from pausing or aborting. What a pod may be
is said in CEL over `variables.pod`, its spec, and `variables.containers`, init containers among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rollouts.kube.model import Resource
from rollouts.kube.resources import DEPLOYMENTS, LEASES, PODS, ROLLOUTS, SIGSTORE_POLICIES
from rollouts.manifests.admission import AdmissionPolicy, Validation, cel_list, cel_string, policy_and_binding
from rollouts.manifests.conventions import (
    ENGINE,
    WEIGHTS,
    WEIGHTS_TOKEN,
    canary_service,
    cluster_wide,
    driver,
    guard,
    prometheus_credentials,
    public_keys,
    stable_service,
    warm_pool,
)
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.access import written_objects
from rollouts.manifests.objects.prometheus import trigger_authentication
from rollouts.manifests.spec import Signatures
from rollouts.model import ImageLaunch
from tidegate.core.errors import UsageError
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY

CONTAINERS = "variables.pod.containers + (has(variables.pod.initContainers) ? variables.pod.initContainers : [])"

_DIGEST = "@sha256:[0-9a-f]{64}$"


def images_from(repositories: Iterable[str]) -> str:
    """A pattern of images by digest: of these repositories, as the trust file names them; of any when there is none."""
    named = "|".join(_pattern(each) for each in repositories)
    return f"^({named or '[^@]+'})(:[^@/]+)?{_DIGEST}"


def _pattern(repository: str) -> str:
    if repository.endswith("/*"):
        return f"{re.escape(repository[:-1])}[^@]+"
    return re.escape(repository)


HOST = Validation(
    holds="!(has(variables.pod.hostNetwork) && variables.pod.hostNetwork) "
    "&& !(has(variables.pod.hostPID) && variables.pod.hostPID) "
    "&& !(has(variables.pod.hostIPC) && variables.pod.hostIPC) "
    "&& variables.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort)))",
    message="nothing of the node's is shared: neither network and its ports, nor processes, nor their memory",
)

NO_FOLDERS = Validation(
    holds="!has(variables.pod.volumes) || variables.pod.volumes.all(v, !has(v.hostPath))",
    message="no folder of the node is mounted (hostPath)",
)

NO_PRIVILEGE = Validation(
    holds="variables.containers.all(c, !has(c.securityContext) "
    "|| (!(has(c.securityContext.privileged) && c.securityContext.privileged) "
    "&& !(has(c.securityContext.capabilities) && has(c.securityContext.capabilities.add))))",
    message="no container is privileged, or gets capabilities",
)

HARDENED = Validation(
    holds="has(variables.pod.securityContext) && has(variables.pod.securityContext.runAsNonRoot) "
    "&& variables.pod.securityContext.runAsNonRoot "
    "&& has(variables.pod.securityContext.seccompProfile) "
    '&& variables.pod.securityContext.seccompProfile.type == "RuntimeDefault" '
    "&& variables.containers.all(c, has(c.securityContext) "
    "&& !(has(c.securityContext.privileged) && c.securityContext.privileged) "
    "&& !(has(c.securityContext.runAsNonRoot) && !c.securityContext.runAsNonRoot) "
    "&& !(has(c.securityContext.runAsUser) && c.securityContext.runAsUser == 0) "
    "&& !has(c.securityContext.seccompProfile) "
    "&& has(c.securityContext.allowPrivilegeEscalation) && !c.securityContext.allowPrivilegeEscalation "
    "&& has(c.securityContext.readOnlyRootFilesystem) && c.securityContext.readOnlyRootFilesystem "
    "&& has(c.securityContext.capabilities) && has(c.securityContext.capabilities.drop) "
    '&& "ALL" in c.securityContext.capabilities.drop && !has(c.securityContext.capabilities.add))',
    message="not root, the runtime's seccomp profile, no escalation, a root nobody can write to, no capabilities",
)


def account(site: Site) -> Validation:
    """The engines' own, which may do nothing, without its token."""
    return Validation(
        holds="has(variables.pod.serviceAccountName) "
        f"&& variables.pod.serviceAccountName == {cel_string(site.account)} "
        "&& has(variables.pod.automountServiceAccountToken) && !variables.pod.automountServiceAccountToken",
        message=f"engines run as the service account {site.account}, without its token",
    )


def volumes(site: Site) -> Validation:
    """Those of an engine: what is empty at its start, the shared cache, the public keys."""
    allowed = [
        "has(v.emptyDir)",
        f"(has(v.configMap) && v.configMap.name == {cel_string(public_keys(site.name))})",
    ]
    claims = (site.fleet.pod.cache.claim, site.release.launch.claim if site.release.launch else None)
    allowed += [
        f"(has(v.persistentVolumeClaim) && v.persistentVolumeClaim.claimName == {cel_string(claim)})"
        for claim in claims
        if claim
    ]
    return Validation(
        holds="!has(variables.pod.volumes) || "
        f"variables.pod.volumes.all(v, {' || '.join([*allowed, *site.additions.volumes])})",
        message="an engine's volumes are empty ones, its cache and the public keys, and no others"
        + (" but those of `fleet.patches`" if site.additions.volumes else ""),
    )


def image(site: Site, repositories: Iterable[str]) -> Validation:
    """Of the repositories that the trust file allows, by digest."""
    allowed = tuple(repositories)
    matches = f"c.image.matches({cel_string(images_from(allowed))})"
    return Validation(
        holds=f"variables.containers.all(c, {site.additions.or_container(matches)})",
        message=f"engines' images are named by digest and come from {', '.join(allowed) or 'a repository'}",
    )


def commands(site: Site) -> tuple[Validation, ...]:
    """What runs in an engine's pod is what its image says, and the entrypoint's own commands."""
    python = site.fleet.pod.python
    pull, drain = ([python, "-m", "tidegate_entrypoint", word] for word in ("pull", "drain"))
    brings = (
        f"c.name == {cel_string(WEIGHTS)} && has(c.command) && c.command.size() >= 4 "
        f"&& [0, 1, 2, 3].all(i, c.command[i] == {cel_list(pull)}[i])"
    )
    added = site.additions
    before = f"variables.pod.initContainers.all(c, {added.or_container(brings)})"
    said = f"has(variables.pod.initContainers) ? {before} : true"
    probes = " && ".join(
        f"!(has(c.{probe}) && has(c.{probe}.exec))" for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    )
    engine = (
        f"c.name == {cel_string(ENGINE)} "
        f"&& !has(c.command) && {probes} && (!has(c.lifecycle) || (!has(c.lifecycle.postStart) "
        f"&& (!has(c.lifecycle.preStop) || (has(c.lifecycle.preStop.exec) "
        f"&& c.lifecycle.preStop.exec.command == {cel_list(drain)}))))"
    )
    secret = site.fleet.pod.cache.secret
    token = f"e.valueFrom.secretKeyRef.name == {cel_string(secret)}" if secret else "false"
    known = (
        f'(e.name == "HOME" && !has(e.valueFrom)) || (e.name == {cel_string(WEIGHTS_TOKEN)} && has(e.valueFrom) '
        f"&& has(e.valueFrom.secretKeyRef) && {token})"
    )
    reads = f"!has(c.envFrom) && (!has(c.env) || c.env.all(e, {site.additions.or_variable(known)}))"
    return (
        Validation(
            holds=f"{added.only(ENGINE)} && variables.pod.containers.all(c, {added.or_container(engine)}) && ({said})",
            message="an engine's pod runs its image's own entrypoint, and what brings its weights, and nothing else",
        ),
        Validation(
            holds=f"variables.containers.all(c, {site.additions.or_container(reads)})",
            message="an engine reads no Secret but the one of its store of weights, and has no variables next to that",
        ),
    )


def prebuilt_commands(site: Site, launch: ImageLaunch) -> tuple[Validation, ...]:
    """The same of an image that tidegate did not build: it waits before it ends, and a container may come before it."""
    pull = launch.pull
    command = cel_list(pull.command[:3]) if pull else "[]"
    brings = (
        f"c.name == {cel_string(WEIGHTS)} && has(c.command) && c.command.size() >= 3 "
        f"&& [0, 1, 2].all(i, c.command[i] == {command}[i])"
        if pull
        else "false"
    )
    added = site.additions
    said = (
        f"has(variables.pod.initContainers) ? variables.pod.initContainers.all(c, {added.or_container(brings)}) : true"
        if pull or site.additions.containers
        else "!has(variables.pod.initContainers) || variables.pod.initContainers.size() == 0"
    )
    probes = " && ".join(
        f"!(has(c.{probe}) && has(c.{probe}.exec))" for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    )
    own = {"HOME", "LOGNAME", *launch.environment, *(pull.environment if pull else ())}
    secrets = cel_list(pull.secrets if pull else ())
    engine = (
        f"c.name == {cel_string(ENGINE)} "
        f"&& !has(c.command) && !has(c.envFrom) && {probes} && (!has(c.lifecycle) || (!has(c.lifecycle.postStart) "
        f"&& (!has(c.lifecycle.preStop) || has(c.lifecycle.preStop.sleep))))"
    )
    known = site.additions.or_variable(f"e.name in {cel_list(sorted(own))} && !has(e.valueFrom)")
    reads = (
        "(!has(c.envFrom) || c.envFrom.all(e, has(e.secretRef) "
        f"&& e.secretRef.name in {secrets})) && (!has(c.env) || c.env.all(e, {known}))"
    )
    return (
        Validation(
            holds=f"{added.only(ENGINE)} && variables.pod.containers.all(c, {added.or_container(engine)}) && ({said})",
            message="an engine's pod runs its image's own entrypoint, and what brings its weights, and nothing else",
        ),
        Validation(
            holds=f"variables.containers.all(c, {site.additions.or_container(reads)})",
            message="what brings weights reads the Secrets of the registry, the engine none, and both have no "
            "variables next to theirs",
        ),
    )


def signed(site: Site) -> tuple[Validation, ...]:
    """Where the trust file names keys, every engine is told them: one whose manifest none of them signed ends."""
    if not site.release.public_keys:
        return ()
    word = cel_string("--public-key")
    told = (
        f"(has(c.args) ? c.args : []).exists(a, a == {word}) "
        f"|| (has(c.command) ? c.command : []).exists(a, a == {word})"
    )
    return (
        Validation(
            holds=f"variables.containers.all(c, {site.additions.or_container(told)})",
            message="engines are told the public keys, and prove their manifest (--public-key)",
        ),
    )


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
    # Rollouts come with a template that Argo Rollouts makes pods of, in its own name.
    template = {
        "pod": "object.spec.template.spec",
        "containers": CONTAINERS,
        "same": "oldObject != null && has(oldObject.spec.template) && oldObject.spec.template == object.spec.template",
    }
    engines = tuple(_rollout(site, admitted))
    yield _policy(site, "rollouts", (ROLLOUTS,), only=tidegate, variables=template, demands=engines)
    if site.fleet.warm_pool:
        demands = tuple(_placeholders(site, site.fleet.warm_pool.image))
        yield _policy(site, "warm-pool", (DEPLOYMENTS,), only=tidegate, variables=template, demands=demands)
    yield _policy(
        site,
        "pods",
        (PODS,),
        operations=("CREATE",),
        chosen_by=site.selector,
        variables={"pod": "object.spec", "containers": CONTAINERS},
        demands=_of_pods(site, admitted),
    )


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
    name, label = cel_string(site.name), cel_string(DELIVERY)
    yield Validation(
        holds=f"object.metadata.name == {name} && !has(object.spec.workloadRef)",
        message=f"tidegate writes the Rollout {site.name}, whose template is its own",
    )
    yield Validation(
        holds="!has(object.spec.strategy.canary) || !has(object.spec.strategy.canary.steps) "
        "|| object.spec.strategy.canary.steps.all(s, !has(s.experiment) && !has(s.plugin))",
        message="no step starts an experiment or a plugin",
    )
    yield _changed(
        Validation(
            holds="has(object.spec.template.metadata.labels) "
            f"&& {label} in object.spec.template.metadata.labels "
            f"&& object.spec.template.metadata.labels[{label}] == {name}",
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
