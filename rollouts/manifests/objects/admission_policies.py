"""What the API server takes from tidegate with `fleet.admission`: engines, and nothing that would run any other pod.

Two policies: on Rollouts and AnalysisTemplates that tidegate writes, and on engines' pods whoever makes them. They say
whose images run, as which user, and that nothing of the node is shared; they do not look at commands, arguments,
variables and volumes. Nothing is demanded of a template that stays as it is, so that no policy that was narrowed
meanwhile keeps anybody from pausing or aborting.
"""

from __future__ import annotations

from rollouts.kube.resources import ANALYSIS_TEMPLATES, PODS, ROLLOUTS
from rollouts.manifests.admission import CONTAINERS, HOST, Demands, cel, images_from, policy_and_binding, user_of
from rollouts.manifests.conventions import ENGINE, WEIGHTS, cluster_wide, driver, guard
from rollouts.manifests.manifest import Site
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY


def policy_names(site: Site) -> tuple[str, ...]:
    """Of the policies that hold tidegate to its own objects, and of their bindings; none without `fleet.admission`."""
    parts = ("rollouts", "pods") if site.fleet.admission else ()
    return tuple(cluster_wide(site.namespace, f"{site.name}-{part}") for part in parts)


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
    return (
        *policy_and_binding(
            site.name,
            site.namespace,
            "rollouts",
            (ROLLOUTS, ANALYSIS_TEMPLATES),
            _of_writes(site),
            only={"tidegate": writers},
            variables=template,
        ),
        *policy_and_binding(
            site.name,
            site.namespace,
            "pods",
            (PODS,),
            _of_pods(site),
            operations=("CREATE",),
            chosen_by=site.selector,
            variables={"pod": "object.spec", "containers": CONTAINERS},
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
