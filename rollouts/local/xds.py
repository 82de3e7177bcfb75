"""What a region's proxy must do, as Envoy resources.

Every engine gets a cluster of its own, named by role and version (`stable_6`, `canary_7`), so that its
numbers can be told apart; mirrored requests go through a third (`shadow_7`), or they would be counted as
users' own. A request picks its cluster by weight. When the canary cannot be reached, the second attempt
goes to the stable engine, the third to the warm one behind it: an engine that dies costs users nothing
but the streams that were already on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollouts.base import RegionSplit
from tidegate.core.model import Json
from tidegate.core.names import ROLE_HEADER, VERSION_HEADER

LOOPBACK = "127.0.0.1"

ROUTE_NAME = "users"
CLUSTERS_FILE = "clusters.json"
ROUTES_FILE = "routes.json"

RETRY_ON = "connect-failure,refused-stream,reset-before-request"
"""Only what never reached an engine is tried again: a prompt that kills one engine must not meet the next."""

IDLE_SECONDS = 3
"""Below the 5 s after which uvicorn, and with it vLLM, closes an idle connection; or a request may meet the close."""

STREAM_IDLE_SECONDS = 300
"""An engine that says nothing for so long is taken for gone; a long prefill says nothing either."""

# What gates, drains and confirmations read; everything would be hundreds of numbers for each cluster.
STATS = (
    r"^cluster\.(stable|canary|shadow|previous)_[^.]+\.(upstream_rq_.*|upstream_cx_(connect_fail|destroy_.*_rq))$",
    r"^http\.users\.downstream_(rq_.*|cx_active)$",
    r"^(cluster_manager\.cds|http\.users\.rds\.users)\.update_(success|rejected)$",
)

_TYPE = "type.googleapis.com/envoy."


def clusters_of(split: RegionSplit, ports: Mapping[str, int]) -> dict[str, int]:
    """Every cluster that these routes can name, with its engine's port; the canary's exist before any traffic."""
    roles = [(str(role), version) for role, version in split.versions.items()]
    shadow = [("shadow", split.canary)] if split.canary else []
    return {f"{role}_{version}": ports[version] for role, version in roles + shadow}


STATS_PATH = "/stats/prometheus"
"""What the admin tells everybody on this machine; all else of it is behind a socket that only we can open."""

_ADMIN = "admin"


def bootstrap(*, entry_port: int, stats_port: int, admin: Path, folder: Path) -> Json:
    """Envoy's start file: routes and clusters from files in `folder`.

    Users' listener is on the loopback, and so is one for the one who scrapes counters. The admin, which can end the
    proxy, listens on a Unix socket: any user of the machine and any web page may send to a port of the loopback.
    """
    users = {"route_config_name": ROUTE_NAME, "config_source": _watched(folder, ROUTES_FILE)}
    match = {"path": STATS_PATH, "headers": [{"name": ":method", "string_match": {"exact": "GET"}}]}
    kept = [{"safe_regex": {"regex": pattern}} for pattern in STATS]
    counters = {"name": _ADMIN, "domains": ["*"], "routes": [{"match": match, "route": {"cluster": _ADMIN}}]}
    return {
        "node": {"id": "tidegate", "cluster": "tidegate"},
        "admin": {"address": _socket(admin)},
        "dynamic_resources": {"cds_config": _watched(folder, CLUSTERS_FILE)},
        "static_resources": {
            "listeners": [
                _listener(ROUTE_NAME, entry_port, rds=users, stream_idle_timeout=f"{STREAM_IDLE_SECONDS}s"),
                _listener(_ADMIN, stats_port, route_config={"name": _ADMIN, "virtual_hosts": [counters]}),
            ],
            "clusters": [_cluster(_ADMIN, {"endpoint": {"address": _socket(admin)}})],
        },
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": kept}}},
    }


def clusters(engines: Mapping[str, int], *, generation: str) -> Json:
    """The cluster file."""
    return _response(generation, "config.cluster.v3.Cluster", [_engine_cluster(*each) for each in engines.items()])


def routes(split: RegionSplit, *, generation: str) -> Json:
    """The route file; `generation` is what Envoy's admin reports once it holds."""
    # Envoy keeps the old generation when nothing else differs; the name makes every generation differ.
    route = {"name": generation, "match": {"prefix": "/"}, **_action(split)}
    users = {"name": ROUTE_NAME, "domains": ["*"], "routes": [route]}
    # Who answered is read from the endpoint itself, so that it is true after a second attempt too.
    told = [_header(ROLE_HEADER, "role"), _header(VERSION_HEADER, "version")]
    configuration = {"name": ROUTE_NAME, "response_headers_to_add": told, "virtual_hosts": [users]}
    return _response(generation, "config.route.v3.RouteConfiguration", [configuration])


def _action(split: RegionSplit) -> Json:
    if split.stable is None:
        return {"direct_response": {"status": 503, "body": {"inline_string": "no engine serves this region\n"}}}
    route: Json = {
        # No limit on a whole answer: it may stream for minutes. Silence has one, and it is the attempt's: the stream's
        # own would end it too, but count it against no engine.
        "timeout": "0s",
        "idle_timeout": f"{STREAM_IDLE_SECONDS + 10}s",
        "inline_cluster_specifier_plugin": {"extension": _attempts(split)},
        "retry_policy": {
            "retry_on": RETRY_ON,
            "per_try_idle_timeout": f"{STREAM_IDLE_SECONDS}s",
            # One for each fallback: the stable, then the warm previous.
            "num_retries": 2,
            "refresh_cluster_on_retry": True,
            "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.05s"},
        },
    }
    if split.canary and split.mirror:
        share = {"default_value": {"numerator": split.mirror, "denominator": "HUNDRED"}}
        shadow = {"cluster": f"shadow_{split.canary}", "runtime_fraction": share}
        # A copy must look like its original, or it would not cost the canary the same.
        route["request_mirror_policies"] = [shadow | {"disable_shadow_host_suffix_append": True}]
    return {"route": route}


def _attempts(split: RegionSplit) -> Json:
    """By weight at first; what could not be delivered goes to the stable engine, then to the warm one behind it."""
    stable = f"stable_{split.stable}"
    last = f"previous_{split.previous}" if split.previous else stable
    shares = {stable: 100 - split.weight, f"canary_{split.canary}": split.weight}
    groups = {"first": shares, "second": {stable: 100}, "third": {last: 100}}
    return _extension(
        "router.cluster_specifier_plugin.priority_group",
        "extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier",
        priority_groups=[
            {
                "name": name,
                "clusters": [{"cluster_name": to, "weight": weight} for to, weight in group.items() if weight],
            }
            for name, group in groups.items()
        ],
    )


def _cluster(name: str, endpoint: Json) -> Json:
    return {
        "name": name,
        "type": "STATIC",
        # On the loopback a connection takes microseconds; a second means that nobody accepts.
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _engine_cluster(name: str, port: int) -> Json:
    role, _, version = name.partition("_")
    endpoint = {
        "endpoint": {"address": _address(port)},
        "metadata": {"filter_metadata": {"tidegate": {"role": role, "version": version}}},
    }
    return {
        **_cluster(name, endpoint),
        "outlier_detection": _OUTLIER_DETECTION,
        "circuit_breakers": {"thresholds": [_UNLIMITED]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_TYPE}extensions.upstreams.http.v3.HttpProtocolOptions",
                # On a kept connection a request can meet the death of its engine, and Envoy cannot know that it
                # never arrived. A fresh one costs 0.1 ms here, and what it cannot reach is tried again.
                "common_http_protocol_options": {"max_requests_per_connection": 1, "idle_timeout": f"{IDLE_SECONDS}s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
    }


_UNLIMITED = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), 100_000)
"""The engine queues by itself and says how much; a proxy that refuses first would hide it."""

_OUTLIER_DETECTION = {
    # Local origin: no connection, no answer. External: a 5xx, which the engine itself gave.
    "split_external_local_origin_errors": True,
    "consecutive_local_origin_failure": 3,
    "enforcing_consecutive_5xx": 0,
    "enforcing_consecutive_gateway_failure": 0,
    "enforcing_success_rate": 0,
    "enforcing_local_origin_success_rate": 0,
    "interval": "1s",
    "base_ejection_time": "2s",
    # A cluster has one endpoint: less than 100 % could eject nobody.
    "max_ejection_percent": 100,
}
"""Eject what cannot be reached. Wrong answers are for the gates to judge: ejection would hide them."""


def _listener(name: str, port: int, **manager: Any) -> Json:
    connection_manager = _extension(
        "filters.network.http_connection_manager",
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        http_filters=[_extension("filters.http.router", "extensions.filters.http.router.v3.Router")],
        **manager,
    )
    return {
        "name": name,
        "address": _address(port),
        # Two listeners with port reuse share a port in silence; without it the second one is an error.
        "enable_reuse_port": False,
        "filter_chains": [{"filters": [connection_manager]}],
    }


def _socket(path: Path) -> Json:
    return {"pipe": {"path": str(path), "mode": 0o600}}


def _header(name: str, key: str) -> Json:
    value = f"%UPSTREAM_METADATA(tidegate:{key})%"
    return {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}


def _watched(folder: Path, name: str) -> Json:
    source = {"path": str(folder / name), "watched_directory": {"path": str(folder)}}
    return {"resource_api_version": "V3", "path_config_source": source}


def _response(generation: str, kind: str, resources: list[Json]) -> Json:
    typed = [{"@type": _TYPE + kind, **resource} for resource in resources]
    return {"version_info": generation, "type_url": _TYPE + kind, "resources": typed}


def _extension(name: str, kind: str, **config: Any) -> Json:
    return {"name": f"envoy.{name}", "typed_config": {"@type": _TYPE + kind, **config}}


def _address(port: int) -> Json:
    return {"socket_address": {"address": LOOPBACK, "port_value": port}}
