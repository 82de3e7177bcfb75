"""What runs the engines of a peer: which of its fields say a version, and when it has come up."""

from __future__ import annotations

import pytest
from fakes.clusters.region import an_image

from rollouts.cluster.workloads import changes, field_of, undone, what_is_missing
from rollouts.errors import NotPossible
from rollouts.manifests.route_spec import WorkloadKind, WorkloadSpec
from tidegate.core.model import Json

TWO = an_image("2")
COUNTED = ("replicas", "updatedReplicas", "readyReplicas")
ARGS = "/spec/leaderWorkerTemplate/leaderTemplate/spec/containers/0/args/0"


def a_set(replicas: int = 2, **status: object) -> Json:
    leader = {"spec": {"containers": [{"name": "vllm", "args": ["--model=/models/1"]}]}}
    template = {"size": 2, "leaderTemplate": leader, "workerTemplate": leader}
    metadata = {"name": "big", "generation": 3, "annotations": {"a/b": "c"}}
    return {
        "metadata": metadata,
        "spec": {"replicas": replicas, "leaderWorkerTemplate": template},
        "status": {**dict.fromkeys(COUNTED, replicas), "observedGeneration": 3, **status},
    }


def theirs(kind: WorkloadKind = WorkloadKind.LEADER_WORKER_SET, field: str = ARGS) -> WorkloadSpec:
    return WorkloadSpec(kind=kind, name="big", set={field: "--model=/models/{version}"})


def test_fields_and_the_number_of_engines_are_asked_for_and_given_back() -> None:
    before = a_set(0)
    asked = changes(before, theirs(), TWO, 4)
    assert asked == [
        {"op": "replace", "path": ARGS, "value": "--model=/models/2"},
        {"op": "replace", "path": "/spec/replicas", "value": 4},
    ]
    assert [each["value"] for each in undone(before, asked)] == ["--model=/models/1", 0]
    assert [each["path"] for each in changes(a_set(2), theirs(), TWO, 4)] == [ARGS], "what has engines keeps its number"
    assert field_of(before, "/metadata/annotations/a~1b") == "c"


def test_nothing_is_added_to_what_others_made() -> None:
    with pytest.raises(NotPossible, match="LeaderWorkerSet big has no /spec/nowhere/0"):
        changes(a_set(), theirs(field="/spec/nowhere/0"), TWO, 1)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (a_set(), ""),
        (a_set(observedGeneration=2), "the controller of LeaderWorkerSet big has not seen what was asked"),
        (a_set(updatedReplicas=1), "LeaderWorkerSet big: 1 of 2 engines are updated"),
        (a_set(readyReplicas=0), "LeaderWorkerSet big: 0 of 2 engines are ready"),
        (a_set(replicas=0), "LeaderWorkerSet big: 0 of 0 engines are updated"),
    ],
)
def test_a_set_is_up_once_all_its_engines_are_new_and_ready(found: Json, told: str) -> None:
    assert what_is_missing(found, theirs()) == told


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ([{"type": "Ready", "status": "True"}], ""),
        ([], "LLMInferenceService big: not ready: it says no more"),
        ([{"type": "Ready", "status": "False", "reason": "Pending", "message": "no GPU"}], ": Pending: no GPU"),
    ],
)
def test_kserve_says_itself_that_it_is_ready(conditions: list[Json], told: str) -> None:
    found = {"metadata": {"generation": 1}, "status": {"conditions": conditions, "observedGeneration": 1}}
    said = what_is_missing(found, theirs(WorkloadKind.LLM_INFERENCE_SERVICE))
    assert said.endswith(told) if told else said == ""
