"""An alert on a region that serves another version than the registry says: what it asks, and for how long."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.services.prometheus import Series, alerts, judged

from slo.registry import NAME, agreement_rules

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

HOLD = timedelta(minutes=90)
RULES = agreement_rules("support-llm", "champion", HOLD)
ALERT = f"SupportLlm{NAME}"


def engines(region: str, version: str, role: str, values: str, service: str = "support-llm") -> Series:
    labels = f'service="{service}",region="{region}",role="{role}",version="{version}"'
    return {f"tidegate:engines:count{{{labels}}}": values}


def alias(version: str, values: str, *, name: str = "champion", instance: str = "a") -> Series:
    labels = f'service="support-llm",model="llm",alias="{name}",version="{version}",instance="{instance}"'
    return {f"tidegate_registry_alias_info{{{labels}}}": values}


def running(values: str) -> Series:
    return {'tidegate_registry_delivery_running{service="support-llm",model="llm",instance="a"}': values}


def fired(region: str, version: str, champion: str) -> dict[str, object]:
    return {
        "exp_labels": {
            "service": "support-llm",
            "region": region,
            "version": version,
            "champion": champion,
            "sloth_service": "support-llm",
            "sloth_slo": "registry",
            "sloth_severity": "ticket",
        },
        "exp_annotations": {
            "summary": f"support-llm in {region}: users are on version {version}, the registry says {champion}",
            "description": (
                f"Stable engines in {region} serve version {version}, and champion has meant version {champion} for "
                "1h30m or longer, with no delivery under way. Somebody moved one of them."
            ),
            "runbook": "docs/guides/slo-export.md#registry-and-region-disagree",
        },
    }


AGREED = alias("6", "1x200") | running("0x200") | engines("us", "6", "stable", "2x200")
REVERTED = AGREED | engines("eu", "5", "stable", "2x200")
"""Somebody wrote the image of before back in one of two regions."""
FIVE_IN_EU = [fired("eu", "5", "6")]

CASES: dict[str, tuple[Series, str, list[dict[str, object]]]] = {
    "both say the same": (AGREED | engines("eu", "6", "stable", "2x200"), "3h", []),
    "a region was written back": (REVERTED, "95m", FIVE_IN_EU),
    "shorter than a promotion may last": (REVERTED, "85m", []),
    "a canary is no disagreement": (AGREED | engines("eu", "7", "canary", "1x200"), "3h", []),
    "nor is a version that is kept warm": (AGREED | engines("eu", "5", "previous", "1x200"), "3h", []),
    "during a delivery, however long": (REVERTED | running("1x200"), "3h", []),
    "after a delivery the whole time counts again": (REVERTED | running("1x100 0x100"), "3h", []),
    "a delivery that died leaves a disagreement": (REVERTED | running("1x50 0x150"), "150m", FIVE_IN_EU),
    "the registry is silent": (REVERTED | alias("6", "1x30"), "3h", []),
    "who is not known is not blamed": (engines("eu", "5", "stable", "2x200"), "3h", []),
    "another alias is another thing": (
        engines("eu", "5", "stable", "2x200") | running("0x200") | alias("6", "1x200", name="challenger"),
        "3h",
        [],
    ),
    "another service with the same numbers": (AGREED | engines("eu", "5", "stable", "2x200", "other"), "3h", []),
    "two servers of which one looks later": (
        REVERTED | alias("6", "1x200", instance="b") | alias("5", "1x2 _x200", instance="c"),
        "3h",
        FIVE_IN_EU,
    ),
}


def test_prometheus_fires_when_and_only_when_users_are_elsewhere(tmp_path: Path) -> None:
    tests = [alerts(case, series, ALERT, expected, at=at) for case, (series, at, expected) in CASES.items()]
    assert judged(tmp_path, [RULES], tests) == ""
