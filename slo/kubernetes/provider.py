"""Which Prometheus an analysis of Argo Rollouts asks, and how it says who asks; secrets stay in their Secrets."""

from __future__ import annotations

from collections.abc import Iterator

from slo.kubernetes.manifest import Manifest
from tidegate.core.access import (
    PrometheusAccess,
    PrometheusAuth,
    PrometheusEndpoint,
    SecretKey,
    SigV4,
    conflicts_for_rollouts,
)
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

ADDRESS = "prometheus"
"""The argument that says it, where nothing secret goes with a request."""
AUTHORIZATION = "prometheus-authorization"
"""The argument that comes from a Secret."""


class AnalysisProvider(Value):
    """The parts of a template that are about Prometheus itself."""

    args: tuple[Manifest, ...]
    settings: Manifest
    """Of `provider.prometheus`, without the query."""


def analysis_provider(endpoint: PrometheusEndpoint) -> AnalysisProvider:
    """As Argo Rollouts asks this endpoint.

    With a Secret the address stands in the metric: an argument could be given another one, and the Secret with it.

    Raises:
        UsageError: Argo Rollouts cannot say who asks.
    """
    for odd in conflicts_for_rollouts(endpoint):
        raise UsageError(f"Argo Rollouts cannot ask {endpoint.url}: {odd.found}", hint=f"give {odd.expected}")
    headers = list(_headers(endpoint))
    settings: Manifest = {}
    if headers:
        settings["headers"] = headers
    if endpoint.auth and endpoint.auth.sigv4:
        settings["authentication"] = {"sigv4": _signature(endpoint.auth.sigv4)}
    secret = _secret_of(endpoint.auth)
    if secret is None:
        address: Manifest = {"name": ADDRESS, "value": endpoint.url}
        return AnalysisProvider(args=(address,), settings={"address": f"{{{{args.{ADDRESS}}}}}", **settings})
    value_from = {"secretKeyRef": {"name": secret.name, "key": secret.key}}
    authorization: Manifest = {"name": AUTHORIZATION, "valueFrom": value_from}
    return AnalysisProvider(args=(authorization,), settings={"address": endpoint.url, **settings})


def _headers(endpoint: PrometheusEndpoint) -> Iterator[Manifest]:
    if endpoint.tenant:
        yield {"key": PrometheusAccess.TENANT_HEADER, "value": endpoint.tenant}
    auth = endpoint.auth
    if auth and (auth.bearer or auth.basic):
        begins = "Bearer " if auth.bearer else ""
        yield {"key": "Authorization", "value": f"{begins}{{{{args.{AUTHORIZATION}}}}}"}


def _secret_of(auth: PrometheusAuth | None) -> SecretKey | None:
    if auth is None:
        return None
    return auth.bearer.secret if auth.bearer else auth.basic.header if auth.basic else None


def _signature(aws: SigV4) -> Manifest:
    given = {"region": aws.region, "profile": aws.profile, "roleArn": aws.role}
    return {key: value for key, value in given.items() if value}
