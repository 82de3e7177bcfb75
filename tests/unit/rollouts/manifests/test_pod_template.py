"""A pod template of theirs as the base of engines' pods: ours goes into it, and what else it says stays."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.clusters.admission import Refusing
from fakes.fleet import fleet_spec, release

from rollouts.manifests.customization.template import pod_template_in
from rollouts.manifests.render import render
from rollouts.manifests.schema import problems_in
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.spec import SpecError

DRIVER = "system:serviceaccount:serving:support-llm-driver"
EXPORTER = "registry.example.com/exporter@sha256:" + "1" * 64
ROLLOUT = f"""\
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {{name: chat}}
spec:
  replicas: 4
  template:
    metadata:
      labels: {{app: chat}}
      annotations: {{sidecar.istio.io/inject: "false"}}
    spec:
      runtimeClassName: nvidia
      hostNetwork: false
      serviceAccountName: theirs
      terminationGracePeriodSeconds: 5
      nodeSelector: {{team: chat}}
      tolerations: [{{key: team, operator: Equal, value: chat}}, {{key: nvidia.com/gpu, operator: Exists}}]
      containers:
        - name: exporter
          image: {EXPORTER}
          securityContext:
            {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
        - name: vllm
          image: vllm/vllm-openai:v0.11.0
          command: [vllm, serve]
          args: [--model, /models]
          env:
            - {{name: NCCL_DEBUG, value: INFO}}
            - {{name: HOME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
          ports: [{{name: metrics, containerPort: 9000}}]
          resources: {{requests: {{cpu: "1"}}, limits: {{vpc.amazonaws.com/efa: "4"}}}}
          volumeMounts: [{{name: dshm, mountPath: /dev/shm}}, {{name: mine, mountPath: /mine}}]
          readinessProbe: {{exec: {{command: ["true"]}}}}
      volumes:
        - {{name: dshm, emptyDir: {{medium: Memory}}}}
        - {{name: scratch, secret: {{secretName: theirs}}}}
        - {{name: mine, configMap: {{name: mine}}}}
"""


def rendered(text: str = ROLLOUT, container: str = "vllm", **changes: Any) -> tuple[Json, ...]:
    fleet = fleet_spec(template={"file": "rollout.yaml", "container": container}, **changes)
    return render(fleet.with_pod_template(pod_template_in(text, "rollout.yaml", container)), release())


def pod_of(objects: tuple[Json, ...]) -> Json:
    found: Json = objects[-1]["spec"]["template"]
    return found


def test_the_engine_is_the_one_that_would_be_rendered_with_more_besides() -> None:
    plain, pod = pod_of(render(fleet_spec(), release())), pod_of(rendered())
    (ours,), (engine, exporter) = plain["spec"]["containers"], pod["spec"]["containers"]
    same = {key for key in ours if ours[key] == engine.get(key)}
    assert set(ours) - same == {"env", "resources", "volumeMounts"}
    assert "command" not in engine and exporter["name"] == "exporter"
    assert engine["env"] == [{"name": "NCCL_DEBUG", "value": "INFO"}, *ours["env"]]
    assert engine["resources"]["requests"] == ours["resources"]["requests"]
    assert engine["resources"]["limits"] == {**ours["resources"]["limits"], "vpc.amazonaws.com/efa": "4"}
    assert {each["mountPath"]: each["name"] for each in engine["volumeMounts"]} == {
        "/mine": "mine",
        **{each["mountPath"]: each["name"] for each in ours["volumeMounts"]},
    }


def test_of_the_pod_what_both_say_is_ours_and_the_rest_theirs() -> None:
    plain, pod = pod_of(render(fleet_spec(), release())), pod_of(rendered())
    assert pod["metadata"]["labels"] == {"app": "chat", **plain["metadata"]["labels"]}
    assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    for key in ("serviceAccountName", "terminationGracePeriodSeconds", "securityContext", "priorityClassName"):
        assert pod["spec"][key] == plain["spec"][key]
    assert (pod["spec"]["runtimeClassName"], pod["spec"]["nodeSelector"]) == ("nvidia", {"team": "chat"})
    assert [each["key"] for each in pod["spec"]["tolerations"]] == ["team", "nvidia.com/gpu"]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert {each["name"]: each for each in plain["spec"]["volumes"]}.items() <= volumes.items()
    assert volumes.keys() >= {"dshm", "mine"}


def test_all_of_it_is_valid_and_policies_let_it_in() -> None:
    objects = rendered()
    assert [str(problem) for each in objects for problem in problems_in(each)] == []
    assert Refusing(objects).refusals(objects[-1], user=DRIVER) == []
    assert Refusing(render(fleet_spec(), release())).refusals(objects[-1], user=DRIVER) != []


def test_patches_come_after_it() -> None:
    operation = {"op": "replace", "path": "/spec/template/spec/runtimeClassName", "value": "other"}
    patch = {"target": {"kind": "Rollout"}, "json6902": [operation]}
    assert pod_of(rendered(patches=[patch]))["spec"]["runtimeClassName"] == "other"


@pytest.mark.parametrize("kind", ["PodTemplate", "Deployment", "StatefulSet", "ReplicaSet"])
def test_other_objects_have_one_too(kind: str) -> None:
    text = ROLLOUT.replace("kind: Rollout", f"kind: {kind}")
    if kind == "PodTemplate":
        lines = [line for line in text.splitlines() if line not in {"spec:", "  replicas: 4"}]
        place = lines.index("  template:")
        text = "\n".join([*lines[:place], *(line[2:] for line in lines[place:])])
    assert pod_of(rendered(text)) == pod_of(rendered())


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("kind: Rollout", "kind: Service", "rollout.yaml:2: kind: found Service; expected one of PodTemplate"),
        ("name: vllm", "name: other", "spec.template.spec.containers: found exporter, other; expected vllm, as"),
        (
            "app: chat",
            "tidegate.dev/version: '9'",
            "rollout.yaml:8: spec.template.metadata.labels.tidegate.dev/version:",
        ),
        ("kind: Rollout", "kind: [", "rollout.yaml:"),
        (ROLLOUT, "a", "rollout.yaml:1: found a file that is text; expected a mapping"),
    ],
)
def test_what_is_no_template_is_told_with_its_line(before: str, after: str, told: str) -> None:
    with pytest.raises(SpecError) as error:
        rendered(ROLLOUT.replace(before, after))
    assert told in str(error.value)


def test_a_file_that_was_not_read_is_told_when_pods_are_made() -> None:
    with pytest.raises(UsageError, match=r"fleet.template: rollout.yaml was not read"):
        render(fleet_spec(template="rollout.yaml"), release())
