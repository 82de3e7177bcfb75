"""Which Secrets the steps of a workflow are given for a Prometheus that wants to know who asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.workflow.cases import GOLDEN

from pipelines.spec.delivery import Delivery
from pipelines.workflow.render import blueprint_of, rendered
from tidegate.core.spec import SpecError, load_spec, parse_spec

PLAIN = "https://prometheus.eu-west-1.example.com"


def spec_with(prometheus: str, case: str = "gpu-build") -> str:
    return (GOLDEN / case / "delivery.yaml").read_text().replace(PLAIN, prometheus)


def template(text: str, folder: Path, case: str = "gpu-build") -> Any:
    for name in ("golden.jsonl", "prompts.txt"):
        (folder / name).write_text((GOLDEN / name).read_text())
    (folder / case).mkdir()
    path = folder / case / "delivery.yaml"
    path.write_text(text)
    return rendered(blueprint_of(load_spec(path, Delivery), path))[-1]["spec"]


SECRETS = f"""{{url: "{PLAIN}", ca: {{secret: {{name: prometheus.eu, key: ca.crt}}}}, rollouts: "http://inside:9090",
        auth: {{bearer: {{env: TIDEGATE_SPEC_TOKEN, secret: {{name: prometheus.eu, key: token}}}}}}}}"""


def test_steps_find_the_keys_that_are_read_as_files_and_a_build_finds_none(tmp_path: Path) -> None:
    spec = template(spec_with(SECRETS), tmp_path)
    (volume,) = (each for each in spec["volumes"] if each.get("secret", {}).get("secretName") == "prometheus.eu")
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}, {"key": "token", "path": "token"}]
    for each in spec["templates"]:
        for container in (each.get("container"), *each.get("initContainers", ())):
            if not container:
                continue
            variables = {one["name"]: one.get("value") for one in container["env"]}
            mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
            is_step = each["name"] in ("open", "stage", "close")
            assert (variables.get("TIDEGATE_SECRETS") == "/secrets") is is_step, each["name"]
            assert (mounted.get(volume["name"]) == "/secrets/prometheus.eu") is is_step


def test_who_names_no_secret_is_given_none(tmp_path: Path) -> None:
    spec = template(spec_with(PLAIN), tmp_path)
    assert "TIDEGATE_SECRETS" not in yaml.safe_dump(spec)


def test_a_file_alone_is_nothing_that_a_pod_has() -> None:
    token = "auth: {bearer: {file: /run/secrets/tidegate/token}}"
    text = spec_with(f'{{url: "{PLAIN}", rollouts: "http://inside:9090", {token}}}')
    with pytest.raises(SpecError, match=r"eu-west-1\.prometheus in a file alone, which no pod has"):
        parse_spec(text, Delivery, file="delivery.yaml")
