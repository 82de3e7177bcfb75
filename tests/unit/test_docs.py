"""What is written about tidegate is true of it: commands, folders, links, examples."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml
from cluster.quickstart import Merged, merged, steps_of
from fakes.clusters.existing import existing
from fakes.kube.api import Api
from fakes.kube.server import FakeTransport, fixed

from gates.reports.gate_file import GateFile
from pipelines.adapters.specs import read_delivery
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trust
from rollouts.drafting import drafted as draft_of
from rollouts.kube.client import KubeClient
from slo.catalogue import OWN_RUNBOOK
from slo.formats.read import read
from slo.spec import KINDS
from tidegate.cli import command_tree, main
from tidegate.core.spec import SpecError, parse_spec
from tidegate.testing import FakeClock

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING")), *(ROOT / "docs").rglob("*.md")]
)
CALL = re.compile(r"\btidegate ((?:[a-z][a-z-]* ?){1,2})")
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
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


@pytest.mark.parametrize("path", SPECS, ids=name)
def test_every_delivery_that_we_hand_out_can_be_read_with_all_that_it_names(path: Path) -> None:
    assert read_delivery(path).regions.names


@pytest.mark.parametrize("path", SPECS, ids=name)
def test_editors_find_the_schema_of_every_delivery_that_we_hand_out(path: Path) -> None:
    schema = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    # The template's schema is written next to it by `tidegate init`.
    assert (
        schema == "delivery.schema.json" or (path.parent / schema).resolve() == ROOT / "docs/schema" / Path(schema).name
    )


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


def test_every_yaml_in_the_docs_is_yaml() -> None:
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            yaml.safe_load(block)


@pytest.mark.parametrize("file", ["golden.jsonl", "prompts.txt"])
def test_what_init_writes_is_the_example_that_we_tried(file: str) -> None:
    assert (ROOT / "tidegate/cli/templates" / file).read_bytes() == (ROOT / "examples/kubernetes" / file).read_bytes()


def test_every_target_that_a_page_asks_make_for_exists() -> None:
    known = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    asked = {
        target for page in PAGES for target in re.findall(r"(?:^|`)make ([a-z0-9-]+)", page.read_text(), re.MULTILINE)
    }
    assert asked <= known


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert "offline" in SITE["plugins"]
    assert all("://" not in script for script in SITE["extra"]["polyfills"])


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


CONSOLE = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def console_blocks() -> Iterator[tuple[str, str, str]]:
    """Page, kind and text of every block with a command."""
    for page in PAGES:
        for margin, kind, text in CONSOLE.findall(page.read_text(encoding="utf-8")):
            block = "".join(line.removeprefix(margin) for line in text.splitlines(keepends=True))
            if re.search(r"^\$ ", block, re.MULTILINE):
                yield name(page), kind, block


def test_what_the_copy_button_takes_is_what_is_typed() -> None:
    """Of the site's HTML without what `site.css` hides while it copies: prompts, and lines that a command prints."""
    assert "[data-md-copying] .gp, [data-md-copying] span:has(> .go) { display: none; }" in (
        ROOT / "docs/assets/site.css"
    ).read_text(encoding="utf-8")
    extensions = ["pymdownx.highlight", "pymdownx.superfences"]
    highlight = next(each for each in SITE["markdown_extensions"] if "pymdownx.highlight" in each)
    for page, kind, block in console_blocks():
        assert kind == "console", f"{page}: {block}"
        made = markdown.markdown(f"```console\n{block}```\n", extensions=extensions, extension_configs=highlight)
        lines = re.findall(r'<span id="__span-[\d-]+">(.*?\n)</span>', made, re.DOTALL)
        kept = [re.sub(r'<span class="gp">.*?</span>', "", line) for line in lines if 'class="go"' not in line]
        copied = html.unescape(re.sub("<[^>]+>", "", "".join(kept)))
        typed = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
        assert copied.split() == "\n".join(typed).split(), page


def test_what_the_quickstart_decides_is_all_that_its_draft_leaves_open() -> None:
    """Merged as a reader does it; the whole page is typed on clusters (tests/cluster)."""
    context = "prod-eu-west-1"
    cluster = existing("helm_rollout")
    transport = FakeTransport(Api(cluster))
    credentials = fixed("https://eu.example", FakeClock(), "token")
    client = KubeClient(credentials, namespace="serving", clock=FakeClock(), transport=transport)
    drafted = yaml.safe_load(asyncio.run(draft_of(client, "support-llm", context=context)))
    page = (ROOT / "docs/start/cluster-quickstart.md").read_text(encoding="utf-8")
    (block,) = [step for step in steps_of(page) if isinstance(step, Merged)]
    assert block.file == "delivery.yaml"
    spec = Delivery.model_validate(merged(drafted, block.keys))
    assert "TODO" not in spec.model_dump_json()
