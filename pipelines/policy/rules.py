"""Which parts of a spec are not its author's to say. Pure: what the machine's files say comes in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from engine_images.arguments.loading import loaded
from pipelines.policy.trust import OURS, SpecTrust
from pipelines.spec import Delivery
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.addresses import host_of, shown
from tidegate.core.model import Contradiction, Loc

CLUSTER = (".svc", ".svc.cluster.local")


def not_for_a_spec(spec: Delivery, trust: SpecTrust) -> Iterator[Contradiction]:
    """Everything that the operator would have to allow, and has not."""
    yield from _variables(spec, trust)
    yield from _plugins(spec, trust)
    yield from _endpoints(spec, trust)


def _variables(spec: Delivery, trust: SpecTrust) -> Iterator[Contradiction]:
    judge = spec.gates.judge
    if judge and judge.api_key_env is not None and not trust.may_read(judge.api_key_env):
        # Not the name: whoever mistook the field for the key's own place must not find it in a log.
        yield _variable(("gates", "judge", "api_key_env"), "a variable that specs may not read", "that name")
    for index, place in enumerate(spec.notify):
        if not trust.may_read(place.variable):
            yield _variable(("notify", index, place.form, "url_from_env"), place.variable, place.variable)


def _variable(where: Loc, found: str, name: str) -> Contradiction:
    expected = f"a name that begins with {OURS}, or {name} under `spec.variables` of trust.yaml"
    return Contradiction(where, found, expected)


def _plugins(spec: Delivery, trust: SpecTrust) -> Iterator[Contradiction]:
    for argument, named in loaded(spec.engine.vllm.args):
        if named not in trust.plugins.get(argument, ()):
            where = ("engine", "vllm", "args", *argument.split("."))
            found = f"{named!r}, which loads code or files, or shows what users said"
            expected = f"none, or {named} under `spec.plugins.{argument}` of trust.yaml"
            yield Contradiction(where, found, expected)


def _endpoints(spec: Delivery, trust: SpecTrust) -> Iterator[Contradiction]:
    judge = spec.gates.judge
    if judge and urlsplit(judge.endpoint).scheme == "http" and not _may_be_plain(judge.endpoint, trust):
        expected = f"https, or {host_of(judge.endpoint)} under `spec.endpoints` of trust.yaml"
        yield Contradiction(("gates", "judge", "endpoint"), shown(judge.endpoint), expected)
    for where, address in _addresses(spec):
        if _is_link_local(address):
            yield Contradiction(where, shown(address), "no link-local address: clouds hand out credentials there")


def _addresses(spec: Delivery) -> Iterator[tuple[Loc, str]]:
    """Whatever tidegate itself asks because a spec says so."""
    if spec.gates.judge:
        yield ("gates", "judge", "endpoint"), spec.gates.judge.endpoint
    if isinstance(spec.fleet, ArgoFleetSpec):
        for name, region in spec.fleet.regions.items():
            place: Loc = ("fleet", "regions", name)
            yield (*place, "entry"), region.entry
            yield (*place, "stable_url"), region.stable_url
            yield (*place, "canary_url"), region.canary_url
            yield (*place, "prometheus"), region.prometheus.url


def _may_be_plain(address: str, trust: SpecTrust) -> bool:
    host = urlsplit(address).hostname or ""
    named = {host, host_of(address)} & set(trust.endpoints)
    return bool(named) or _is_loopback(host) or host.endswith(CLUSTER)


def _is_loopback(host: str) -> bool:
    number = _number(host)
    return host == "localhost" or (number is not None and number.is_loopback)


def _is_link_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    number = _number(host)
    return host in ("metadata", "metadata.google.internal") or (number is not None and number.is_link_local)


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return None
    # ::ffff:169.254.169.254 is the same machine.
    return getattr(number, "ipv4_mapped", None) or number
