"""What an undo asks for again."""

from __future__ import annotations

import json

from rollouts.argo.actions import INJECTED, original_template
from tidegate.core.model import Json


def test_what_the_controller_put_into_a_template_is_not_asked_for() -> None:
    labels = {"tidegate.dev/version": "1", "tidegate.dev/role": "stable", "rollouts-pod-template-hash": "5d"}
    replica_set: Json = {
        "metadata": {"annotations": {INJECTED: json.dumps({"labels": {"tidegate.dev/role": "stable"}})}},
        "spec": {"template": {"metadata": {"labels": dict(labels)}}},
    }
    assert original_template(replica_set)["metadata"]["labels"] == {"tidegate.dev/version": "1"}
    assert replica_set["spec"]["template"]["metadata"]["labels"] == labels
