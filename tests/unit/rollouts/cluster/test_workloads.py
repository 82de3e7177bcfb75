"""What runs the engines of a peer: which of its fields say a version, and when it has come up."""

from __future__ import annotations

import pytest
from fakes.clusters.region import an_image

from rollouts.cluster.peers import changes, field_of, undone, what_is_missing
from rollouts.errors import NotPossible
from rollouts.manifests.theirs_spec import WorkloadKind, WorkloadSpec
from tidegate.core.model import Json

TWO, MODEL = an_image("2"), "/spec/template/args/0"
SET, KSERVE = WorkloadKind.LEADER_WORKER_SET, WorkloadKind.LLM_INFERENCE_SERVICE
UP = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "observedGeneration": 3}


def theirs(kind: WorkloadKind = SET, field: str = MODEL) -> WorkloadSpec:
    return WorkloadSpec(kind=kind, name="big", set={field: "--model=/models/{version}"})


def found(engines: int = 2, **status: object) -> Json:
    spec = {"replicas": engines, "template": {"args": ["--model=/models/1"]}}
    return {"metadata": {"generation": 3, "annotations": {"a/b": "c"}}, "spec": spec, "status": status}


def test_fields_and_the_number_of_engines_are_asked_for_and_given_back() -> None:
    asked = changes(found(0), theirs(), TWO, 4)
    assert [(each["path"], each["value"]) for each in asked] == [(MODEL, "--model=/models/2"), ("/spec/replicas", 4)]
    assert [each["value"] for each in undone(found(0), asked)] == ["--model=/models/1", 0]
    assert [each["path"] for each in changes(found(), theirs(), TWO, 4)] == [MODEL], "what has engines keeps its number"
    assert field_of(found(), "/metadata/annotations/a~1b") == "c"
    with pytest.raises(NotPossible, match="LeaderWorkerSet big has no /spec/nowhere/0"):
        changes(found(), theirs(field="/spec/nowhere/0"), TWO, 1)


@pytest.mark.parametrize(
    ("kind", "status", "told"),
    [
        (SET, UP, ""),
        (SET, UP | {"observedGeneration": 2}, "the controller of LeaderWorkerSet big has not seen what was asked"),
        (
            SET,
            UP | {"observedGeneration": None},
            f"{SET} big has no status.observedGeneration, by which its controller says "
            "what it has seen: a newer one does",
        ),
        (SET, UP | {"updatedReplicas": 1}, "LeaderWorkerSet big: 1 of 2 engines are updated"),
        (SET, UP | {"readyReplicas": 0}, "LeaderWorkerSet big: 0 of 2 engines are ready"),
        (SET, UP | {"replicas": 3}, "LeaderWorkerSet big: 3 engines, and 2 are wanted"),
        (KSERVE, {"conditions": [{"type": "Ready", "status": "True"}]}, ""),
        (KSERVE, {}, "LLMInferenceService big: not ready: it says no more"),
        (KSERVE, {"conditions": [{"type": "Ready", "reason": "Pending"}]}, f"{KSERVE} big: Pending: it says no more"),
    ],
)
def test_it_is_up_once_all_its_engines_are_new_and_ready(kind: WorkloadKind, status: Json, told: str) -> None:
    assert next(what_is_missing(found(**{"observedGeneration": 3} | status), theirs(kind)), "") == told
