"""Who else writes an adopted object, and what to do so that nobody writes it back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from rollouts.adoption.gitops import argo_cd_settings, delivered_objects, flux_settings
from rollouts.kube.model import MANAGER
from rollouts.kube.objects import at, labels_of, owns_field, said
from rollouts.manifests.ownership import owner_of
from tidegate.core.model import Json, Value
from tidegate.core.names import MANAGED_BY_LABEL
from tidegate.core.yaml_text import yaml_text


class Tool(StrEnum):
    """One that writes objects of its own again and again."""

    HELM = "Helm"
    ARGO_CD = "Argo CD"
    FLUX = "Flux"
    OTHER = "another writer"


_WORDS = {"helm": Tool.HELM, "argocd": Tool.ARGO_CD, "kustomize-controller": Tool.FLUX, "flux": Tool.FLUX}
"""Parts of field managers' names."""
_MARKS = {"Helm release": Tool.HELM, "Argo CD application": Tool.ARGO_CD, "Flux": Tool.FLUX}
"""Parts of what `owner_of` says."""
_CONTROLLERS = (
    "rollouts-controller",
    "argo-rollouts",
    "kube-controller-manager",
    "kubelet",
    "keda",
    "before-first-apply",
)
"""Field managers that write what is theirs to write."""

ADVICE = {
    Tool.HELM: "an upgrade of the release writes them back: take them out of the chart first, after an upgrade that "
    "gives them the annotation helm.sh/resource-policy: keep",
    Tool.ARGO_CD: "a sync writes them back: put this into the `spec` of the Application",
    Tool.FLUX: "a reconciliation writes them back: put this into the `spec` of the Kustomization; a HelmRelease has "
    "no such thing, take them out of its chart",
    Tool.OTHER: "anyone who applies them again writes them back: do not, until they are given back",
}
"""What each does, and what to do."""


class ReturningWriter(Value):
    """One tool, and the objects of an adoption that are its own."""

    tool: Tool
    name: str
    """As the objects name it."""
    objects: tuple[str, ...]
    advice: str
    paste: str = ""
    """YAML for its own configuration; empty where there is none."""


def returning_writers(lives: Iterable[Json]) -> tuple[ReturningWriter, ...]:
    """Of these objects, by tool."""
    found: dict[tuple[Tool, str], list[Json]] = {}
    for live in lives:
        for tool, name in dict.fromkeys(_tools(live)):
            found.setdefault((tool, name), []).append(live)
    return tuple(
        ReturningWriter(
            tool=tool,
            name=name,
            objects=tuple(map(said, mine)),
            advice=ADVICE[tool],
            paste=_PASTE[tool](mine) if tool in _PASTE else "",
        )
        for (tool, name), mine in found.items()
    )


def _for_argo_cd(lives: Iterable[Json]) -> str:
    return yaml_text(argo_cd_settings(delivered_objects(lives)))


def _for_flux(lives: Iterable[Json]) -> str:
    return yaml_text(flux_settings(delivered_objects(lives)))


_PASTE = {Tool.ARGO_CD: _for_argo_cd, Tool.FLUX: _for_flux}


def _tools(live: Json) -> Iterator[tuple[Tool, str]]:
    owner = owner_of(live)
    marked = next(((tool, part) for mark, tool in _MARKS.items() for part in owner.split("; ") if mark in part), None)
    if marked:
        yield marked[0], marked[1].removeprefix("managed by ").removeprefix("of ")
        return
    if labels_of(live).get(MANAGED_BY_LABEL) == "Helm":
        yield Tool.HELM, "Helm"
        return
    for entry in at(live, "metadata", "managedFields", default=[]):
        manager = str(entry.get("manager") or "")
        if entry.get("subresource") or not owns_field(entry, ("f:spec",)) or manager == MANAGER:
            continue
        if any(manager.startswith(each) for each in _CONTROLLERS):
            continue
        yield next((tool for word, tool in _WORDS.items() if word in manager.lower()), Tool.OTHER), manager
