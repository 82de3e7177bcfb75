"""`git` of a spec: who writes what when."""

from __future__ import annotations

import yaml
from fakes.clusters.region import a_fleet

from pipelines.plan.git_changes import values_of, wanted_of_regions, wanted_of_wave
from pipelines.plan.planner import steps_of
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import parse_spec

WAVES = [["eu-west-1"], ["us-east-1", "ap-south-1"]]
FILES = [{"path": "apps/{region}/values.yaml", "set": {"/image/digest": "{digest}"}}]
GIT = {"repository": "https://git.example/team/serving.git", "files": FILES}


def spec_with(git: object) -> Delivery:
    regions = [each for wave in WAVES for each in wave]
    said = {
        "apiVersion": "tidegate/v1",
        "kind": "Delivery",
        "metadata": {"name": "support-llm"},
        "model": {"name": "support-llm"},
        "engine": {"vllm": {"version": "0.32.0"}},
        "gates": {"errors": {}},
        "stages": [{"canary": {"gates": ["errors"]}}],
        "regions": {"waves": WAVES},
        "fleet": a_fleet(*regions).model_dump(mode="json", exclude_unset=True),
        "git": git,
    }
    return parse_spec(yaml.safe_dump(said), Delivery, file="d.yaml")


def test_each_wave_has_its_step_between_its_promotions_and_its_bake() -> None:
    ids = [step.id for step in steps_of(spec_with(GIT), prompts=0)]
    assert [each for each in ids if each.split("@")[0] in ("promote", "git", "bake")] == [
        *("promote@eu-west-1", "git@1", "bake@1"),
        *("promote@us-east-1", "promote@ap-south-1", "git@2", "bake@2"),
    ]


def test_who_writes_what_when() -> None:
    shared = {"path": "all.yaml", "set": {"/image": "{image}"}}
    keyed = {"path": "keyed.yaml", "object": "ConfigMap/{region}", "set": {"/data/{region}.tag": "{engine}"}}
    named = {**FILES[0], "paths": {"us-east-1": "prod/us.yaml"}}
    spec = spec_with({**GIT, "files": [shared, keyed, named]})
    assert spec.git is not None
    image = "registry.example:5000/llm:v2@sha256:ab"
    waves = [wanted_of_wave(spec, spec.git, wave, engine="7-cd", image=image) for wave in (1, 2)]
    assert [[each.path for each in wave] for wave in waves] == [
        ["keyed.yaml", "apps/eu-west-1/values.yaml"],
        ["keyed.yaml", "prod/us.yaml", "keyed.yaml", "apps/ap-south-1/values.yaml", "all.yaml"],
    ]
    assert waves[1][0].object == "ConfigMap/us-east-1"
    assert waves[1][0].fields == {"/data/us-east-1.tag": "7-cd"}
    assert waves[1][1].fields == {"/image/digest": "sha256:ab"}
    assert waves[1][-1].fields == {"/image": image}
    whole = wanted_of_regions(spec, spec.git, spec.regions.names, engine="7-cd", image=image, whole=True)
    assert sorted(map(str, whole)) == sorted(str(each) for wave in waves for each in wave)
    values = values_of(spec, "7-cd", image)
    assert (values["repository"], values["digest"], values["version"]) == (
        "registry.example:5000/llm",
        "sha256:ab",
        "7",
    )
    assert values_of(spec, "7", "registry.example:5000/llm@sha256:ab")["repository"] == "registry.example:5000/llm"
