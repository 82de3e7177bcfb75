"""Prometheus evaluates what it is told, says no to what it cannot, and remembers both over its own death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.engines.local_fleet import newest_with
from fakes.services.http import page
from fakes.waiting import eventually

from rollouts.adapters.host_client import FleetHost
from rollouts.adapters.http import Http
from rollouts.errors import Unreachable
from tidegate.core.errors import Refused

RULES = """
groups:
  - name: {group}
    rules:
      - record: tidegate:{group}:count
        expr: count(up) by (job)
"""
BROKEN = """
groups:
  - name: broken
    rules:
      - record: tidegate:broken
        expr: sum(rate(up[1m])
"""

Ask = Callable[[str], Awaitable[Any]]


@pytest.fixture
async def ask(host: FleetHost) -> AsyncIterator[Ask]:
    """Prometheus' own API."""
    async with Http() as http:

        async def data(path: str) -> Any:
            return (await http.get(f"{host.prometheus_url}/api/v1/{path}")).json()["data"]

        yield data


async def groups(ask: Ask) -> set[str]:
    """What Prometheus says that it evaluates."""
    return {group["name"] for group in (await ask("rules"))["groups"]}


def running(state: Path) -> psutil.Process:
    """Prometheus."""
    return newest_with(f"--config.file={state}/fleet/prometheus/prometheus.yml")


async def answered(ask: Ask, query: str) -> list[Any] | None:
    """None while it is empty."""
    return (await ask(f"query?query={query}"))["result"] or None


async def silent(ask: Ask) -> bool:
    return await answered(ask, 'up{job="delivery"}') is None


async def value(ask: Ask, query: str) -> float:
    """The query's first answer."""
    found = await eventually(f"{query} has a value", lambda: answered(ask, query))
    return float(found[0]["value"][1])


@pytest.mark.slow(reason="rules are evaluated every ten seconds")
async def test_rules_are_evaluated_replaced_and_refused(host: FleetHost, state: Path, ask: Ask, numbers: str) -> None:
    await host.load_rules(RULES.format(group="targets"))
    await host.scrape_also("support-llm", numbers)
    (group,) = (await ask("rules"))["groups"]
    assert (group["name"], group["interval"]) == ("targets", 10)
    # A delivery's own numbers are read until it is forgotten.
    assert await value(ask, 'tidegate_gate_number{job="delivery",gate="errors",region="eu-west-1"}') == 0.5
    assert await value(ask, 'tidegate:targets:count{job="delivery"}') == 1
    assert (await ask("query?query=other_number"))["result"] == []
    await host.forget("support-llm")
    await eventually("it is scraped no more", lambda: silent(ask))
    await host.forget("support-llm")

    await host.load_rules(RULES.format(group="good"))
    assert await groups(ask) == {"good"}
    with pytest.raises(Refused, match=r"^prometheus refuses the rules: .*unclosed left parenthesis") as caught:
        await host.load_rules(BROKEN)
    assert "\n" not in caught.value.message
    assert "rules.yml" not in caught.value.message
    assert caught.value.exit_code == 2
    assert await groups(ask) == {"good"}

    # Saying the same again starts nothing.
    before = running(state)
    await host.load_rules(RULES.format(group="good"))
    assert running(state) == before
    await host.load_rules("")
    assert await groups(ask) == set()


async def test_rules_outlive_prometheus_and_wait_until_it_is_back(host: FleetHost, state: Path, ask: Ask) -> None:
    # Only rules that were said to this host count.
    (state / "fleet/prometheus/rules.yml").write_text(RULES.format(group="old"), encoding="utf-8")
    await killed_and_back(host, state)
    assert await groups(ask) == set()

    await host.load_rules(RULES.format(group="good"))
    with pytest.raises(Refused, match="refuses the rules"):
        await host.load_rules(BROKEN)
    await killed_and_back(host, state)
    assert await groups(ask) == {"good"}

    prometheus = running(state)
    prometheus.kill()
    prometheus.wait(60)
    await host.load_rules(RULES.format(group="late"))
    assert await groups(ask) == {"late"}


@pytest.fixture
def numbers() -> Iterator[str]:
    """The address of somebody's metrics."""

    numbers = 'tidegate_gate_number{gate="errors",region="eu-west-1"} 0.5\nother_number 1\n'
    with page(lambda: numbers) as address:
        yield f"http://{address}"


async def killed_and_back(host: FleetHost, state: Path) -> None:
    """Prometheus dies; returns when another one answers in its place."""
    prometheus = running(state)
    prometheus.kill()
    prometheus.wait(60)
    async with Http() as http:
        while True:
            with suppress(Unreachable):
                if (await http.get(f"{host.prometheus_url}/-/ready")).is_success:
                    return
            await asyncio.sleep(0.1)
