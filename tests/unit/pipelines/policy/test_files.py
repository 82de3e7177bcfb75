"""The files that a spec names are regular files below its repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.events.artifacts import laid_out
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import files_elsewhere, root_of
from tidegate.core.spec import parse_spec

SPEC = """
apiVersion: tidegate/v1
kind: Delivery
metadata: {{name: m}}
model: {{name: m}}
engine: {{vllm: {{version: 0.32.0}}}}
gates: {{latency: {{}}, errors: {{}}}}
stages: [{{canary: {{}}}}]
regions: {{waves: [[eu]]}}
traffic: {{requests_per_second: 2, prompts: '{prompts}'}}
"""


def refusals(folder: Path, prompts: str, root: Path | None = None) -> list[str]:
    spec = parse_spec(SPEC.format(prompts=prompts), Delivery, file="d.yaml")
    found = files_elsewhere(spec, folder, root or root_of(folder / "d.yaml"))
    return [f"{'.'.join(map(str, odd.where))}: {odd.expected}" for odd in found]


@pytest.mark.parametrize("path", ["/proc/self/environ", "../" * 30 + "proc/self/environ", "/dev/stdin", "/sys/kernel"])
def test_nothing_of_the_kernel_is_a_file_of_a_spec(tmp_path: Path, path: str) -> None:
    assert refusals(tmp_path, path) == ["traffic.prompts: a file, and nothing of the kernel's"]


def test_a_file_next_to_the_spec_is_right_and_one_above_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "specs").mkdir()
    assert refusals(tmp_path / "specs", "prompts.txt") == []
    (line,) = refusals(tmp_path / "specs", "../secret")
    assert f"a file below {tmp_path / 'specs'}" in line


def test_in_a_repository_all_of_it_is_below(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "specs").mkdir()
    assert refusals(tmp_path / "specs", "../data/prompts.txt") == []
    assert len(refusals(tmp_path / "specs", "../../prompts.txt")) == 1


def test_the_operator_may_name_another_root(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    assert refusals(tmp_path / "specs", "../prompts.txt", tmp_path) == []


def test_a_link_that_leads_out_is_followed_and_refused(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "kubeconfig").write_text("k")
    (tmp_path / "specs" / "prompts.txt").symlink_to(tmp_path / "kubeconfig")
    assert len(refusals(tmp_path / "specs", "prompts.txt")) == 1


def test_the_links_of_a_mounted_config_map_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "..2026" / "a").mkdir(parents=True)
    (tmp_path / "..2026" / "prompts.txt").write_text("p")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "a").symlink_to("..data/a")
    (tmp_path / "prompts.txt").symlink_to("..data/prompts.txt")
    assert refusals(tmp_path / "a", "../prompts.txt", tmp_path) == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusals(tmp_path, ".") == ["traffic.prompts: a regular file"]


def test_every_file_that_a_spec_names_is_kept_with_its_delivery(tmp_path: Path) -> None:
    asked = "harness: {kind: command, run: [./judge], files: [asked.jsonl]}"
    text = SPEC.format(prompts="prompts.txt").replace("errors: {}", f"errors: {{}}, {asked}")
    spec = parse_spec(text, Delivery, file="d.yaml")
    _, kept = laid_out(tmp_path / "d.yaml", spec)
    assert sorted(kept) == ["asked.jsonl", "d.yaml", "prompts.txt"]
