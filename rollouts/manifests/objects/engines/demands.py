"""What admission policies demand of an engine's pod, in CEL over `variables.pod`, its spec, and `variables.containers`.

Init containers are among the containers. Each is about one thing, so that a refusal says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rollouts.manifests.admission import Validation, cel_list, cel_string
from rollouts.manifests.conventions import ENGINE, WEIGHTS, WEIGHTS_TOKEN, public_keys, samples_request
from rollouts.manifests.manifest import Site
from rollouts.model import ImageLaunch

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
    if site.samples:
        allowed.append(f"(has(v.configMap) && v.configMap.name == {cel_string(samples_request(site.name))})")
    claims = (site.fleet.pod.cache.claim, site.release.launch.claim if site.release.launch else None)
    allowed += [
        f"(has(v.persistentVolumeClaim) && v.persistentVolumeClaim.claimName == {cel_string(claim)})"
        for claim in claims
        if claim
    ]
    return Validation(
        holds="!has(variables.pod.volumes) || "
        f"variables.pod.volumes.all(v, {' || '.join([*allowed, *site.additions.volumes])})",
        message=f"an engine's volumes are empty ones, its cache{', samples' if site.samples else ''} and the public "
        "keys, and no others" + (" but those of `fleet.patches`" if site.additions.volumes else ""),
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
