"""SLOs and a price as a person writes them, for dashboards."""

from __future__ import annotations

from slo.spec import CostSpec, SloSpec

SLOS = tuple(
    SloSpec.model_validate(item)
    for item in (
        {"name": "availability", "objective": 99.9, "errors": {}},
        {"name": "ttft", "objective": 99, "ttft": {"below": "250ms"}},
        {"name": "itl", "objective": 99, "itl": {"below": "50ms"}},
        {"name": "whole", "objective": 99, "e2e": {"below": "10s"}},
        {"name": "room", "objective": 95, "kv_cache": {"below": "90%"}},
        {"name": "good", "objective": 95, "quality": {"at_least": 0.8}},
    )
)
COST = CostSpec(per_engine_hour=2.5, budget_per_month=4000)
