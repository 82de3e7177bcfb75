"""The two Services of a delivery: whoever is stable, and whoever is on trial."""

from __future__ import annotations

from rollouts.kube.model import Json
from rollouts.kube.resources import SERVICES
from rollouts.manifests.conventions import PORT_NAME, SERVICE_PORT, canary_service, stable_service
from rollouts.manifests.manifest import Site, manifest


def services(site: Site) -> tuple[Json, ...]:
    """Stable and canary. Argo Rollouts narrows each selector to one version's pods; until then both have all."""
    return tuple(_service(site, name) for name in (stable_service(site.name), canary_service(site.name)))


def _service(site: Site, name: str) -> Json:
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": PORT_NAME}
    return manifest(SERVICES, name, site, spec={"selector": dict(site.selector), "ports": [port]})
