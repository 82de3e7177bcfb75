"""Verdicts on live traffic: which source tells what about a region's two arms."""

from __future__ import annotations

from datetime import datetime

from gates.evaluate import measure
from gates.model import ArmKey, Verdict
from pipelines.context import Context


def latency_verdict(context: Context, stable: ArmKey, canary: ArmKey, since: datetime, *, final: bool) -> Verdict:
    """Users' own times when somebody writes them down, else the engines' histograms."""
    settings = context.spec.gates.latency
    assert settings is not None, "the spec was read without settings for the latency gate"
    until, source = context.clock.now(), context.users or context.proxy
    return measure(settings, source, stable=stable, canary=canary, since=since, until=until, deadline_passed=final)


def errors_verdict(
    context: Context, stable: ArmKey, canary: ArmKey, since: datetime, *, final: bool, users: bool = True
) -> Verdict:
    """The worst of what every source saw: a proxy does not know that a client's stream broke, nor a client a retry."""
    settings = context.spec.gates.errors
    assert settings is not None, "the spec was read without settings for the errors gate"
    until = context.clock.now()
    sources = [context.proxy] + ([context.users] if users and context.users else [])
    verdicts = [
        measure(settings, source, stable=stable, canary=canary, since=since, until=until, deadline_passed=final)
        for source in sources
    ]
    return max(verdicts, key=lambda verdict: verdict.outcome)
