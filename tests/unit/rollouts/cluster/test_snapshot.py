"""What one look at a region's objects shows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rollouts.cluster.model import RegionConfig
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.cluster.state import region_state
from rollouts.manifests.conventions import PREVIOUS
from rollouts.model import RegionPhase
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, POD_TEMPLATE_HASH, VERSION

PLACE = RegionConfig(
    region="eu-west-1", name="support-llm", entry="https://e", stable_url="https://s", canary_url="https://c"
)
OURS = {"name": "support-llm", "labels": {DELIVERY: "support-llm"}}
ROUTE: Json = {
    "metadata": OURS,
    "spec": {
        "rules": [
            {
                "backendRefs": [
                    {"name": "support-llm-stable", "weight": 75},
                    {"name": "support-llm-canary", "weight": 25},
                ]
            }
        ]
    },
}


def replica_set(pod_hash: str, version: str, *, wanted: int = 2, available: int = 2, number: int = 1) -> Json:
    return {
        "metadata": {
            "labels": {POD_TEMPLATE_HASH: pod_hash},
            "annotations": {"rollout.argoproj.io/revision": str(number)},
            "ownerReferences": [{"uid": "u", "controller": True}],
        },
        "spec": {"replicas": wanted, "template": {"metadata": {"labels": {VERSION: version}}}},
        "status": {"availableReplicas": available},
    }


def seen(
    *sets: Json, stable: str, current: str, previous: str = "", route: Json | None = ROUTE, **status: object
) -> RegionSnapshot:
    rollout: Json = {
        "metadata": {**OURS, "uid": "u", "generation": 1, "annotations": {PREVIOUS: previous}},
        "spec": {"strategy": {"canary": {}}},
        "status": {"observedGeneration": "1", "stableRS": stable, "currentPodHash": current, "phase": "Healthy"}
        | status,
    }
    return RegionSnapshot(datetime(2026, 1, 1, tzinfo=UTC), PLACE, rollout, sets, route)


TWO = (replica_set("a", "1"), replica_set("b", "2", number=2))


def test_the_version_before_is_the_one_that_was_noted_and_is_still_up() -> None:
    look = seen(*TWO, stable="b", current="b", previous="1")
    assert look.previous
    assert look.previous.version == "1"
    assert (look.can_go_back_to("1"), look.can_go_back_to("2"), look.can_go_back_to("7")) == (True, False, False)


def test_a_version_that_is_up_and_was_not_noted_is_gone_back_to_only_by_who_names_it() -> None:
    look = seen(*TWO, stable="b", current="b")
    assert (look.previous, look.can_go_back_to("1")) == (None, True)


def test_one_that_went_cold_is_none_either() -> None:
    cold = replica_set("a", "1", wanted=0, available=0)
    look = seen(cold, TWO[1], stable="b", current="b", previous="1")
    assert (look.previous, look.can_go_back_to("1")) == (None, False)


def test_one_that_is_on_its_way_back_still_goes_there() -> None:
    """Repeated after a crash: its template is asked for, and it has not taken over yet."""
    look = seen(*TWO, stable="b", current="a", previous="1")
    assert (look.previous, look.can_go_back_to("1")) == (None, True)


def test_what_is_on_trial_is_no_way_back() -> None:
    assert not seen(*TWO, stable="b", current="a").can_go_back_to("1")


def test_replica_sets_of_a_rollout_before_this_one_do_not_count() -> None:
    foreign = replica_set("a", "1")
    foreign["metadata"]["ownerReferences"][0]["uid"] = "older"
    assert [each.version for each in seen(foreign, TWO[1], stable="b", current="b").revisions] == ["2"]


@pytest.mark.parametrize(
    ("look", "phase", "problem"),
    [
        pytest.param(seen(*TWO, stable="a", current="b"), RegionPhase.TRIAL, None, id="a trial"),
        pytest.param(seen(*TWO, stable="b", current="b"), RegionPhase.STEADY, None, id="steady"),
        pytest.param(
            seen(replica_set("a", "1", available=1), stable="a", current="a"),
            RegionPhase.STEADY,
            "stable (version 1): 1 of 2 engines are ready",
            id="an engine less",
        ),
        pytest.param(
            seen(replica_set("a", "1", available=0), stable="a", current="a"),
            RegionPhase.DEGRADED,
            "stable (version 1): 0 of 2 engines are ready",
            id="no engine",
        ),
        pytest.param(
            seen(TWO[0], stable="a", current="a", route=None),
            RegionPhase.DEGRADED,
            "HTTPRoute support-llm is gone: nobody can be sent to a canary",
            id="no route",
        ),
        pytest.param(
            seen(*TWO, stable="a", current="b", abort=True, abortedAt="2026-01-01T00:00:00Z", phase="Degraded"),
            RegionPhase.DEGRADED,
            "version 2 was aborted in the region itself, and 25 % of users are on it still: somebody aborted it",
            id="an abort",
        ),
        pytest.param(seen(stable="", current="a"), RegionPhase.EMPTY, None, id="never stable"),
    ],
)
def test_a_region_is_told_in_the_words_of_every_fleet(
    look: RegionSnapshot, phase: RegionPhase, problem: str | None
) -> None:
    state = region_state(look)
    assert (state.phase, state.problem) == (phase, problem)


def test_weight_and_copies_are_those_of_a_trial_only() -> None:
    assert region_state(seen(*TWO, stable="a", current="b")).weight == 25
    assert region_state(seen(*TWO, stable="b", current="b")).weight == 0
