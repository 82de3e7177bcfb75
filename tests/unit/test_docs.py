"""What is written about tidegate is true of it: commands, folders, links, examples."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from fakes.metrics.queries import read

from gates.reports.gate_file import GateFile
from pipelines.adapters.specs import read_delivery
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trust
from slo.catalogue import OWN_RUNBOOK
from slo.spec import KINDS
from tidegate.cli import command_tree, main
from tidegate.core.spec import SpecError, parse_spec

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING")), *(ROOT / "docs").rglob("*.md")]
)
CALL = re.compile(r"\btidegate ((?:[a-z][a-z-]* ?){1,2})")
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
SPECS = sorted([ROOT / "tidegate/cli/templates/delivery.yaml", *(ROOT / "examples").rglob("delivery.yaml")])


def commands() -> set[str]:
    """Every command by the words that call it, groups included."""
    root: Any = command_tree()
    inner = {f"{name} {verb}" for name, group in root.commands.items() for verb in getattr(group, "commands", ())}
    return set(root.commands) | inner


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def headings(page: Path) -> set[str]:
    """The anchors of a page, as they are made of its headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_operations_have_every_variable_and_no_other() -> None:
    """One that ends in `_` is the beginning of several; `TIDEGATE_ENGINE` too."""
    found = {
        variable
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for variable in re.findall(r"\bTIDEGATE_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    } - {"TIDEGATE_ENGINE"}
    page = (ROOT / "docs/guides/operations.md").read_text(encoding="utf-8")
    section = page.partition("## Environment variables")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(TIDEGATE_[A-Z_]+)`", section)) == found


def test_every_finding_of_the_review_is_answered_with_a_test_that_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| \d", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 34))
    proof = re.compile(r"\]\((tests/[a-z_/]+\.py)\)(?: \(`(test_[a-z_0-9]+)`\))?")
    for row in rows:
        found = proof.findall(row)
        assert found, row
        assert all(f"def {test}" in (ROOT / path).read_text(encoding="utf-8") for path, test in found), row


def test_every_command_that_a_page_calls_exists() -> None:
    known = commands()
    groups = {command.split()[0] for command in known if " " in command}
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = "\n".join(re.findall(r"^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
        spans = re.findall(r"`(tidegate [a-z][^`\n]*)`", text) + re.findall(
            r"^\$? ?(tidegate [a-z].*)$", fences, re.MULTILINE
        )
        for words in (match[1].split() for span in spans if (match := CALL.match(span))):
            command = " ".join(words[:2]) if words[0] in groups else words[0]
            wrong += [] if command in known else [f"{name(page)}: {command}"]
    assert wrong == []


def test_the_gates_in_the_docs_are_the_example_that_we_ran() -> None:
    example = (ROOT / "examples/gates/gates.yaml").read_text(encoding="utf-8").split("\n", 1)[1]
    assert f"```yaml\n{example}```" in (ROOT / "docs/guides/gate-command.md").read_text(encoding="utf-8")


def test_alerts_of_every_kind_of_slo_point_to_a_section() -> None:
    assert set(KINDS) <= headings(ROOT / OWN_RUNBOOK)


def test_the_slos_in_the_docs_are_right() -> None:
    (block,) = re.findall(r"```yaml\n(slos:.*?)```", (ROOT / OWN_RUNBOOK).read_text(), re.DOTALL)
    spec = (ROOT / "tidegate/cli/templates/delivery.yaml").read_text(encoding="utf-8")
    assert {slo.kind for slo in parse_spec(spec + block, Delivery, file="docs").slos} == set(KINDS)


def test_whole_deliveries_in_the_docs_are_right() -> None:
    blocks = [block for page in PAGES for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)]
    whole = [block for block in blocks if "apiVersion: tidegate/" in block]
    assert whole
    for block in whole:
        if "kind: Gates" in block:
            assert parse_spec(block, GateFile, file="docs").asked
        elif "kind: Trust" in block:
            assert parse_spec(block, Trust, file="docs") != Trust()
        else:
            assert parse_spec(block, Delivery, file="docs").stages


def test_whole_slo_specs_in_the_docs_are_right_or_told_to_be_wrong_as_shown() -> None:
    page = (ROOT / "docs/reference/slo.md").read_text(encoding="utf-8")
    right, wrong = re.findall(r"```yaml\n(version: prometheus/v1\n.*?)```", page, re.DOTALL)
    assert read(right, file="slos.yaml")
    with pytest.raises(SpecError) as caught:
        read(wrong, file="many.yaml")
    assert f"$ tidegate slo validate many.yaml\n{caught.value}\n```" in page


@pytest.mark.parametrize("page", ["README.md", "docs/start/laptop-quickstart.md", "docs/start/ci-quickstart.md"])
def test_the_first_command_prints_what_is_shown(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages break its lines where a screen ends."""
    example = ROOT / "examples/gates"
    assert main(["gate", "check", str(example / "gates.yaml"), str(example / "evidence.jsonl")]) == 1
    printed = capsys.readouterr().out.split()
    assert " ".join(printed) in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_the_delivery_on_the_first_page_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Next to the prompts that `tidegate init` writes."""
    (block,) = re.findall(r"```yaml\n(apiVersion: .*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert main(["init", str(tmp_path)]) == 0
    (tmp_path / "delivery.yaml").write_text(block, encoding="utf-8")
    assert main(["plan", str(tmp_path / "delivery.yaml"), "--offline"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("example", sorted({path.parent for path in SPECS}), ids=name)
def test_a_copy_of_an_example_is_whole(example: Path, tmp_path: Path) -> None:
    shutil.copytree(example, tmp_path / "mine")
    assert read_delivery(tmp_path / "mine" / "delivery.yaml").regions.names


def test_commands_stand_in_blocks_whose_prompt_and_output_are_not_copied() -> None:
    for page in PAGES:
        for kind, text in re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.M | re.S):
            assert kind == "console" or not re.search(r"^ *\$ ", text, re.MULTILINE), f"{name(page)}: {text}"


def test_the_demo_types_commands_and_options_that_exist() -> None:
    typed = re.findall(r"tidegate\((\"[^\n]*)\)$", (ROOT / "examples/demo/run.py").read_text(), re.MULTILINE)
    assert typed
    for words in (re.findall(r'"([^"]+)"', each) for each in typed):
        command: Any = command_tree()
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {
            name
            for each in command.get_params(command.make_context("x", [], resilient_parsing=True))
            for name in each.opts
        }
        assert {word for word in words if word.startswith("--")} <= known, words
