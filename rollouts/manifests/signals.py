"""What an autoscaler asks Prometheus, so that the answer over its target is the number of engines wanted.

Sums over engines, never averages: an average would be multiplied with all pods that there are, canary and warm
previous among them, and double the stable during every trial (argo-rollouts#3849). While users are split the sum over
both arms is what the stable needs alone, so an abort meets enough engines. Copies of requests are left out where the
delivery's own metrics tell that there are some; where nobody knows, there is rather an engine too many.

No engine in sight gives no sample, which is an error to the autoscaler and never 0.
"""

from __future__ import annotations

from rollouts.manifests.manifest import Site
from rollouts.manifests.scaling_spec import AutoscaleSpec
from tidegate.core.model import Value

WAITING, KV_CACHE, TTFT = "waiting", "kv-cache", "ttft"
"""Names of the signals."""

_TTFT_WINDOW = "2m"


class Signal(Value):
    """One question, and how much of its answer one engine may have."""

    name: str
    query: str
    target: float


def signals(site: Site, wanted: AutoscaleSpec) -> tuple[Signal, ...]:
    """Those that the spec gives a target."""
    found = []
    if wanted.waiting is not None:
        found.append(Signal(name=WAITING, query=_sum("vllm:num_requests_waiting", site), target=wanted.waiting))
    if wanted.kv_cache is not None:
        found.append(Signal(name=KV_CACHE, query=_sum("vllm:kv_cache_usage_perc", site), target=wanted.kv_cache))
    if wanted.ttft is not None:
        found.append(Signal(name=TTFT, query=_first_token(site), target=wanted.ttft.total_seconds()))
    return tuple(found)


def _sum(metric: str, site: Site) -> str:
    stable, canary = (f"sum({metric}{{{_arm(site, role)}}})" for role in ("stable", "canary"))
    return f"{stable} + (({canary} unless on () ({_copied(site)} > 0)) or on () 0 * {stable})"


def _first_token(site: Site) -> str:
    """Engines, each as slow as all: twice the target asks for twice the engines. An idle region asks for none."""
    users = _arm(site, "stable")
    engines = f"count(vllm:num_requests_running{{{users}}})"
    buckets = f"sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{{{users}}}[{_TTFT_WINDOW}]))"
    return f"({engines} * (histogram_quantile(0.95, {buckets}) >= 0)) or 0 * {engines}"


def _arm(site: Site, role: str) -> str:
    return f'service="{site.name}",region="{site.release.region}",role="{role}"'


def _copied(site: Site) -> str:
    return f'max(tidegate_delivery_mirror_percent{{service="{site.name}",region="{site.release.region}"}})'
