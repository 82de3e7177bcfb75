"""Which Rollout of which cluster the options of a command mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli.rollout_options import RolloutLocation, RolloutOptions, location_of
from tidegate.core.errors import UsageError

ROOT = Path(__file__).parents[3]
CLUSTERS = ROOT / "examples/kubernetes/delivery.yaml"
LOCAL = ROOT / "tidegate/cli/templates/delivery.yaml"


def asked(
    name: str | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    spec: Path | None = None,
    region: str | None = None,
) -> RolloutOptions:
    return RolloutOptions(name=name, context=context, namespace=namespace, spec=spec, region=region)


def test_a_name_is_looked_for_where_the_kubeconfig_points_to() -> None:
    assert location_of(asked("chat")) == RolloutLocation("chat", None, None)


def test_context_and_namespace_can_be_said() -> None:
    assert location_of(asked("chat", context="prod", namespace="serving")) == RolloutLocation("chat", "prod", "serving")


def test_a_spec_says_all_three() -> None:
    place = location_of(asked(spec=CLUSTERS, region="us-east-1"))
    assert place == RolloutLocation("support-llm", "prod-us-east-1", "serving")


def test_what_is_said_overrules_the_spec() -> None:
    place = location_of(asked("chat", context="test", namespace="other", spec=CLUSTERS, region="us-east-1"))
    assert place == RolloutLocation("chat", "test", "other")


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        (asked(), "which Rollout"),
        (asked("chat", region="eu-west-1"), "--region needs the spec of a delivery"),
        (asked(spec=CLUSTERS), "found no region; expected one of eu-west-1, us-east-1, ap-south-1"),
        (asked(spec=CLUSTERS, region="mars"), "found region 'mars'; expected one of"),
        (asked(spec=LOCAL, region="eu-west-1"), "the fleet of this delivery is no cluster"),
    ],
)
def test_what_does_not_fit_together_is_told(what: RolloutOptions, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        location_of(what)


def test_a_list_needs_no_name() -> None:
    assert location_of(asked(context="prod"), named=False) == RolloutLocation("", "prod", None)
