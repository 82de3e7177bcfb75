"""How KEDA says to Prometheus who asks: an object of the set-up that names Secrets, which tidegate may not write."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.kube.resources import TRIGGER_AUTHENTICATIONS
from rollouts.manifests.conventions import prometheus_credentials
from rollouts.manifests.manifest import Site, manifest
from tidegate.core.access import (
    AuthKind,
    CredentialSource,
    PrometheusAccess,
    PrometheusEndpoint,
    conflicts_for_keda,
)
from tidegate.core.errors import UsageError
from tidegate.core.model import Json

_MODES = {AuthKind.BEARER: "bearer", AuthKind.BASIC: "basic", AuthKind.CERTIFICATE: "tls"}
_PARAMETERS = {
    ("auth", "bearer"): "bearerToken",
    ("auth", "basic", "username"): "username",
    ("auth", "basic", "password"): "password",
    ("auth", "certificate", "certificate"): "cert",
    ("auth", "certificate", "key"): "key",
    ("ca",): "ca",
}
"""Names of KEDA's Prometheus scaler for what an access names."""


def trigger_authentication(site: Site) -> Json | None:
    """The object, where KEDA asks and has to say who it is; None elsewhere.

    Raises:
        UsageError: a secret is in no Secret.
    """
    endpoint = site.prometheus.for_keda
    if endpoint.auth is None or site.fleet.autoscale is None:
        return None
    for odd in conflicts_for_keda(endpoint):
        raise UsageError(f"KEDA cannot ask {endpoint.url}: {odd.found}", hint=f"give {odd.expected}")
    if endpoint.auth.sigv4:
        spec: Json = {"podIdentity": {"provider": "aws"}}
    else:
        spec = {"secretTargetRef": [*_targets(endpoint)]}
    return manifest(TRIGGER_AUTHENTICATIONS, prometheus_credentials(site.name), site, spec=spec)


def trigger_metadata(endpoint: PrometheusEndpoint) -> Json:
    """What stands in the trigger itself, nothing of it secret."""
    auth = endpoint.auth
    mode = _MODES.get(auth.kind) if auth else None
    return {
        "serverAddress": endpoint.url,
        **({"authModes": mode} if mode else {}),
        **({"customHeaders": f"{PrometheusAccess.TENANT_HEADER}={endpoint.tenant}"} if endpoint.tenant else {}),
        **({"awsRegion": auth.sigv4.region} if auth and auth.sigv4 else {}),
    }


def _targets(endpoint: PrometheusEndpoint) -> Iterator[Json]:
    for where, source in endpoint.sources():
        yield from _target(_PARAMETERS[where], source)


def _target(parameter: str, source: CredentialSource) -> Iterator[Json]:
    if source.secret:
        yield {"parameter": parameter, "name": source.secret.name, "key": source.secret.key}
