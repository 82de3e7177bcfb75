"""`git` of a spec: what is refused, with its line, and never with a secret in it."""

from __future__ import annotations

import re

import pytest
import yaml
from fakes.clusters.region import a_fleet

from pipelines.plan.git_changes import values_of, wanted_of_regions, wanted_of_wave
from pipelines.plan.planner import steps_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import not_for_a_spec
from pipelines.spec.trust import SpecTrust
from tidegate.core.spec import SpecError, parse_spec

WAVES = [["eu-west-1"], ["us-east-1", "ap-south-1"]]
FILES = [{"path": "apps/{region}/values.yaml", "set": {"/image/digest": "{digest}"}}]
GIT = {"repository": "https://git.example/team/serving.git", "files": FILES}


def spec_with(git: object, **more: object) -> Delivery:
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
        **more,
    }
    return parse_spec(yaml.safe_dump(said), Delivery, file="d.yaml")


def refusals(git: object, trust: SpecTrust | None = None, **more: object) -> list[str]:
    try:
        spec = spec_with(git, **more)
    except SpecError as error:
        return [re.sub(r"^d\.yaml:\d+: ", "", str(each)) for each in error.problems]
    found = not_for_a_spec(spec, trust or SpecTrust())
    return [f"{'.'.join(map(str, odd.where))}: found {odd.found}; expected {odd.expected}" for odd in found]


@pytest.mark.parametrize(
    "repository",
    [
        "https://git.example/team/serving.git",
        "ssh://git@git.example:2222/team/serving.git",
        "git@github.com:team/serving.git",
        "http://127.0.0.1:8080/serving.git",
    ],
)
def test_addresses_by_ssh_and_https(repository: str) -> None:
    assert refusals({**GIT, "repository": repository}) == []


@pytest.mark.parametrize(
    "repository",
    [
        "https://ci:hunter2@git.example/serving.git",
        "ssh://git:hunter2@git.example/serving.git",
        "https://hunter2@git.example/serving.git",
        "ext::sh -c hunter2",
        "--upload-pack=hunter2",
        "ssh://-oProxyCommand=hunter2/x",
        "-oProxyCommand=hunter2:x",
        "git@host:-hunter2",
        "/srv/hunter2",
        "../hunter2",
        "file:///srv/../hunter2",
        "file://host/hunter2",
        "git://git.example/hunter2",
        "hunter2",
        ["hunter2"],
    ],
)
def test_other_addresses_are_refused_without_a_word_of_them(repository: object) -> None:
    with pytest.raises(SpecError, match=r"^d\.yaml:[1-9]\d*: git\.repository: "):
        spec_with({**GIT, "repository": repository})
    (said,) = refusals({**GIT, "repository": repository})
    assert said.startswith("git.repository: found something else; expected ssh://HOST/PATH")
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"branch": "a..b"}, "git.branch: found 'a..b'; expected a branch's name"),
        ({"branch": "-x"}, "git.branch: found '-x'"),
        ({"files": []}, "git.files: found"),
        ({"files": [{**FILES[0], "path": "../x"}]}, "git.files[0].path: found '../x'; expected a path of a file"),
        ({"files": [{**FILES[0], "path": "a/.git/config"}]}, "git.files[0].path"),
        ({"files": [{**FILES[0], "path": "/etc/x"}]}, "git.files[0].path"),
        ({"files": [{"path": "x", "set": {"a.b": "{digest}"}}]}, "git.files[0].set: found"),
        ({"files": [{"path": "x", "set": {"/a//b": "{digest}"}}]}, "a JSON pointer, such as /image/digest"),
        ({"files": [{"path": "x", "set": {"/a": "{tag}"}}]}, "texts of {image}, {repository}, {digest}"),
        ({"files": [{"path": "x", "set": {"/a": "b\nc"}}]}, "texts of one line"),
        ({"files": [{**FILES[0], "paths": {"mars": "x"}}]}, "git.files[0].paths.mars: found an unknown region"),
        ({"auth": {"ssh": {"key": {"env": "TIDEGATE_SPEC_T"}}}}, "git.auth.ssh: found ssh for https://git.example"),
        ({"auth": {}}, "git.auth: found nothing; expected exactly one of basic, bearer, ssh"),
        ({"auth": {"bearer": "hunter2"}}, "git.auth.bearer: found something else; expected {env: NAME}"),
        ({"sync": {}}, "git.sync: found nothing; expected exactly one of argo_cd, flux"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(changes: dict[str, object], problem: str) -> None:
    said = refusals({**GIT, **changes})
    assert any(each.startswith(problem) or problem in each for each in said), said
    assert "hunter2" not in str(said)


def test_a_fleet_on_this_machine_has_no_images_to_name() -> None:
    (said,) = refusals(GIT, fleet={"kind": "local"})
    assert said.startswith("git: found a repository for the local fleet")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"auth": {"bearer": {"env": "AWS_SECRET"}}}, "git.auth.bearer.env: found a variable that specs may not read"),
        ({"auth": {"bearer": {"file": "/root/token"}}}, "git.auth.bearer.file: found a file that specs may not name"),
        ({"repository": "file:///srv/a.git"}, "git.repository: found file:///srv/a.git; expected ssh or https, or"),
        ({"repository": "http://git.example/a.git"}, "git.repository: found http://git.example/a.git; expected https"),
        ({"repository": "http://169.254.169.254/a"}, "git.repository: found http://169.254.169.254/a; expected no"),
    ],
)
def test_what_the_operator_has_not_allowed(changes: dict[str, object], problem: str) -> None:
    said = refusals({**GIT, **changes})
    assert any(each.startswith(problem) for each in said), said


def test_what_the_operator_allows() -> None:
    allowed = SpecTrust.model_validate({"files": ["/srv"], "endpoints": ["git.example"]})
    assert refusals({**GIT, "repository": "file:///srv/a.git"}, allowed) == []
    assert refusals({**GIT, "repository": "http://git.example/a.git"}, allowed) == []


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
    assert {each.path for wave in waves for each in wave} == {
        each.path for each in wanted_of_regions(spec, spec.git, engine="7-cd", image=image)
    }
    values = values_of(spec, "7-cd", image)
    assert (values["repository"], values["digest"], values["version"]) == (
        "registry.example:5000/llm",
        "sha256:ab",
        "7",
    )
    assert values_of(spec, "7", "registry.example:5000/llm@sha256:ab")["repository"] == "registry.example:5000/llm"
