"""A Rollout as Rich renderables and as lines: what `tidegate rollout` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rollouts.argo.state import HealthState, RolloutHealth
from rollouts.argo.view import ROLLOUT_ICONS, RolloutSummary, RolloutView, RunningImage, TreeNode, short_age

KINDS = {
    "Rollout": "⟳",
    "Revision": "#",
    "ReplicaSet": "⧉",
    "Pod": "□",
    "AnalysisRun": "α",
    "Experiment": "Σ",
    "Job": "⊞",
}
"""A sign for each kind, as kubectl's plugin has it."""


MARK_STYLES = {"✔": "green", "✖": "red", "⚠": "red", "◌": "bright_blue", "◷": "yellow", "?": "yellow"}


ROLE_STYLES = {"canary": "yellow", "stable": "green", "active": "green", "preview": "bright_blue"}


STATE_STYLES = {
    HealthState.STUCK: "bold red",
    HealthState.DEGRADED: "red",
    HealthState.INCONCLUSIVE: "yellow",
    HealthState.HEALTHY: "green",
}


def screen(picture: RolloutView, now: datetime) -> RenderableType:
    """All of it: numbers, images, tree."""
    return Group(_head(picture), Text(), _tree(picture.tree, now))


def rows_table(rows: Sequence[RolloutSummary]) -> Table:
    """One line for each rollout."""
    table = Table.grid(padding=(0, 2))
    titles = ("NAME", "STRATEGY", "HEALTH", "STEP", "SET-WEIGHT", "READY", "DESIRED", "UPDATED", "AVAILABLE", "WHY")
    for _ in titles:
        table.add_column(no_wrap=True)
    table.add_row(*(Text(title, "dim") for title in titles))
    for row in rows:
        table.add_row(
            row.name,
            row.strategy,
            _health(row.health),
            "-" if row.step is None else f"{row.step}/{row.steps}",
            "-" if row.set_weight is None else str(row.set_weight),
            f"{row.ready}/{row.current}",
            str(row.desired),
            str(row.updated),
            str(row.available),
            Text(row.health.cause or row.health.message, "dim"),
        )
    return table


def health_text(health: RolloutHealth) -> str:
    """In one line, with the reason where there is one."""
    said = f"{health.state} ({health.message})" if health.message else str(health.state)
    return f"{said}: {health.cause}" if health.cause else said


def change_line(row: RolloutSummary) -> str:
    """One line for a log: health, step and weight, pods."""
    step = f", step {row.step}/{row.steps}" if row.step is not None else ""
    weight = f", weight {row.actual_weight} %" if row.actual_weight is not None else ""
    return f"{row.name}: {health_text(row.health)}{step}{weight}, {row.available} of {row.desired} available"


def _head(picture: RolloutView) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Name:", picture.name)
    table.add_row("Namespace:", picture.namespace)
    table.add_row("Status:", _health(picture.health))
    if picture.health.message:
        table.add_row("Message:", picture.health.message)
    if picture.health.cause:
        table.add_row("Cause:", picture.health.cause)
    table.add_row("Strategy:", picture.strategy)
    if picture.step is not None:
        running = f"  {picture.running_step}" if picture.running_step else ""
        table.add_row("  Step:", f"{picture.step}/{picture.steps}{running}")
    if picture.set_weight is not None:
        table.add_row("  SetWeight:", str(picture.set_weight))
        table.add_row("  ActualWeight:", str(picture.actual_weight))
    for index, image in enumerate(picture.images):
        table.add_row("" if index else "Images:", _image(image))
    table.add_row("Replicas:", "")
    table.add_row("  Desired:", str(picture.desired))
    table.add_row("  Current:", str(picture.current))
    table.add_row("  Updated:", str(picture.updated))
    table.add_row("  Ready:", str(picture.ready))
    table.add_row("  Available:", str(picture.available))
    return table


def _tree(root: TreeNode, now: datetime) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(5):
        table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row(*(Text(title, "dim") for title in ("NAME", "KIND", "STATUS", "AGE", "INFO")))
    for prefix, node in _lines(root):
        named = Text.assemble((prefix, "dim"), f"{KINDS[node.kind]} ", (node.name, _role_style(node)))
        age = short_age(now - node.created) if node.created else ""
        kind = "" if node.kind == "Revision" else node.kind
        table.add_row(named, kind, _status(node), age, _info(node))
    return table


def _lines(node: TreeNode, prefix: str = "", below: str = "") -> Iterator[tuple[str, TreeNode]]:
    """Every node with the branches that lead to it."""
    yield prefix, node
    for child in node.children:
        last = child is node.children[-1]
        yield from _lines(child, below + ("└──" if last else "├──"), below + ("   " if last else "│  "))


def _health(health: RolloutHealth) -> Text:
    mark = ROLLOUT_ICONS[health.state]
    return Text.assemble(
        (mark, MARK_STYLES.get(mark, "")), " ", (str(health.state), STATE_STYLES.get(health.state, ""))
    )


def _status(node: TreeNode) -> Text:
    return Text.assemble((node.mark, MARK_STYLES.get(node.mark, "")), f" {node.status}") if node.status else Text()


def _info(node: TreeNode) -> Text:
    return Text(",").join(Text(each, ROLE_STYLES.get(each, MARK_STYLES.get(each[:1], ""))) for each in node.info)


def _role_style(node: TreeNode) -> str:
    return next((ROLE_STYLES[each] for each in reversed(node.info) if each in ROLE_STYLES), "")


def _image(image: RunningImage) -> Text:
    if not image.roles:
        return Text(image.image)
    roles = Text(", ").join(Text(role, ROLE_STYLES.get(role, "")) for role in image.roles)
    return Text.assemble(f"{image.image} (", roles, ")")
