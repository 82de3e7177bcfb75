"""How users reach pods of others: Services, routes, gateways. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.strategy import services as named_services
from rollouts.kube.objects import at, labels_of, name_of, selects
from rollouts.kube.resources import GATEWAYS, HTTP_ROUTES, INGRESSES, SERVICES, VIRTUAL_SERVICES
from rollouts.survey.model import Router, ServiceFacts, TrafficFacts
from rollouts.survey.objects import Objects
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH

_USUAL = {"http": 80, "https": 443}


def traffic_facts(objects: Objects, workload: Json, template: Json, namespace: str) -> TrafficFacts:
    """The Services that select its pods, and what leads users to them."""
    services = tuple(_services(objects, workload, template))
    names = {each.name for each in services}
    found = (
        _by_http_route(objects, names, namespace)
        or _by_virtual_service(objects, names, namespace)
        or _by_ingress(objects, names)
        or TrafficFacts()
    )
    return found.model_copy(update={"services": services})


def selecting(objects: Objects, workload: Json, template: Json) -> Iterator[Json]:
    """The Services that select its pods, those too that Argo Rollouts narrowed to one version."""
    named = set(named_services(workload).values())
    for service in objects.all(SERVICES):
        asked = {
            key: value for key, value in at(service, "spec", "selector", default={}).items() if key != POD_TEMPLATE_HASH
        }
        if name_of(service) in named or selects(asked, labels_of(template)):
            yield service


def _services(objects: Objects, workload: Json, template: Json) -> Iterator[ServiceFacts]:
    for service in selecting(objects, workload, template):
        yield ServiceFacts(
            name=name_of(service),
            type=str(at(service, "spec", "type", default="ClusterIP")),
            ports=tuple(int(each["port"]) for each in at(service, "spec", "ports", default=[]) if each.get("port")),
        )


def _by_http_route(objects: Objects, services: set[str], namespace: str) -> TrafficFacts | None:
    for route in objects.all(HTTP_ROUTES):
        own = str(at(route, "metadata", "namespace", default=namespace))
        rules = at(route, "spec", "rules", default=[])
        targets = {
            str(backend.get("name"))
            for rule in rules
            for backend in at(rule, "backendRefs", default=[])
            if str(backend.get("namespace") or own) == namespace and backend.get("kind", "Service") == "Service"
        }
        if targets & services:
            return _of_http_route(objects, route, own)
    return None


def _of_http_route(objects: Objects, route: Json, own: str) -> TrafficFacts:
    parent: Json = next(
        (each for each in at(route, "spec", "parentRefs", default=[]) if each.get("kind", "Gateway") == "Gateway"), {}
    )
    name, place = str(parent.get("name", "")), str(parent.get("namespace") or own)
    gateway = next(
        (
            each
            for each in objects.all(GATEWAYS)
            if (name_of(each), at(each, "metadata", "namespace", default=own)) == (name, place)
        ),
        {},
    )
    listeners = at(gateway, "spec", "listeners", default=[])
    listener = str(parent.get("sectionName") or "")
    hosts = tuple(map(str, at(route, "spec", "hostnames", default=[])))
    return TrafficFacts(
        router=Router.HTTP_ROUTE,
        route=name_of(route),
        gateway=name,
        gateway_namespace=place,
        listener=listener,
        other_listeners=tuple(
            str(each["name"]) for each in listeners if listener and each.get("name") not in {None, listener}
        ),
        hosts=hosts,
        entry=_entry(hosts, listeners, listener),
        timeout=next(
            (
                str(found)
                for rule in at(route, "spec", "rules", default=[])
                if (found := at(rule, "timeouts", "request"))
            ),
            "",
        ),
    )


def _entry(hosts: tuple[str, ...], listeners: list[Json], named: str) -> str:
    """By the route's listener, else by one that speaks TLS, else by any; https where no listener may be read."""
    known = [each for each in listeners if named in {"", each.get("name")}]
    known.sort(key=lambda each: each.get("protocol") not in {"HTTPS", "TLS"})
    listener: Json = known[0] if known else {}
    host = next((each for each in (*hosts, str(listener.get("hostname") or "")) if each and "*" not in each), "")
    if not host:
        return ""
    scheme = "http" if listener.get("protocol") == "HTTP" else "https"
    port = listener.get("port")
    return f"{scheme}://{host}" + (f":{port}" if port and port != _USUAL[scheme] else "")


def _by_virtual_service(objects: Objects, services: set[str], namespace: str) -> TrafficFacts | None:
    for service in objects.all(VIRTUAL_SERVICES):
        own = str(at(service, "metadata", "namespace", default=namespace))
        rules = at(service, "spec", "http", default=[])
        targets = {
            _short(str(at(each, "destination", "host", default="")), own, namespace)
            for rule in rules
            for each in at(rule, "route", default=[])
        }
        if targets & services:
            return _of_virtual_service(service, rules, own)
    return None


def _short(host: str, own: str, namespace: str) -> str:
    """The Service of our namespace that a destination means; empty for one of another."""
    name, _, rest = host.partition(".")
    place = rest.partition(".")[0] or own
    return name if place == namespace else ""


def _of_virtual_service(service: Json, rules: list[Json], own: str) -> TrafficFacts:
    named = [str(each) for each in at(service, "spec", "gateways", default=[]) if each != "mesh"]
    place, _, gateway = named[0].rpartition("/") if named else ("", "", "")
    hosts = tuple(str(each) for each in at(service, "spec", "hosts", default=[]) if "." in str(each))
    outside = [each for each in hosts if "*" not in each and not each.endswith((".svc", ".cluster.local"))]
    return TrafficFacts(
        router=Router.VIRTUAL_SERVICE,
        route=name_of(service),
        gateway=gateway,
        gateway_namespace=place or own,
        hosts=hosts,
        entry=f"https://{outside[0]}" if outside else "",
        timeout=next((str(each["timeout"]) for each in rules if each.get("timeout")), ""),
    )


def _by_ingress(objects: Objects, services: set[str]) -> TrafficFacts | None:
    for ingress in objects.all(INGRESSES):
        rules = at(ingress, "spec", "rules", default=[])
        targets = {
            str(at(path, "backend", "service", "name", default=""))
            for rule in rules
            for path in at(rule, "http", "paths", default=[])
        }
        if targets & services:
            hosts = tuple(str(each["host"]) for each in rules if each.get("host"))
            scheme = "https" if at(ingress, "spec", "tls") else "http"
            plain = [each for each in hosts if "*" not in each]
            entry = f"{scheme}://{plain[0]}" if plain else ""
            return TrafficFacts(router=Router.INGRESS, route=name_of(ingress), hosts=hosts, entry=entry)
    return None
