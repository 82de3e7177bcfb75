"""Everything that somebody with MLflow's own client may change under an open delivery: found by the step, and audited.

One row for each: what is done, what the next step says, and what `tidegate audit verify` says. Nobody signs here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fakes.clusters.served import Clusters
from fakes.terminal import Said, Tidegate

from registry.conventions import ENGINE_IMAGE
from registry.deliveries import MlflowDeliveries
from registry.model import Event
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry

EVENT = "mlflow.tidegate.event."
REGIONS = ("eu-west-1", "us-east-1")
TRANSCRIPT = Path("evidence/shadow@eu-west-1.jsonl")
DONE, NEXT = ("build", "deploy@eu-west-1", "smoke@eu-west-1", "offline@eu-west-1"), "promote@eu-west-1"


@dataclass
class Scene:
    """A delivery that has gone as far as `DONE`, and the one who may write to MLflow."""

    tidegate: Tidegate
    delivery: str
    name: str
    state: Path
    undo: list[Callable[[], None]] = field(default_factory=list)
    """What takes back what was changed."""

    @property
    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(embedded_uri(self.state))

    def step(self) -> Said:
        return self.tidegate("stage", NEXT, "--delivery", self.delivery)

    def audit(self) -> Said:
        return self.tidegate("audit", "verify", self.delivery)

    def events(self, step: str, kind: str) -> list[dict[str, str]]:
        """The events of that step and kind, each as MLflow keeps it: in one tag, or in several where it is long."""
        tags = self.client.get_run(self.delivery).data.tags
        found: dict[str, dict[str, str]] = {}
        for key in sorted(key for key in tags if key.startswith(EVENT)):
            found.setdefault(re.sub(r"\.\d+of", ".of", key), {})[key] = tags[key]
        told = [(parts, _event("".join(parts.values()))) for parts in found.values()]
        return [parts for parts, event in told if event and (event["step"], event["kind"]) == (step, kind)]

    def edit(self, step: str, kind: str, old: str, new: str) -> None:
        """Change an event by hand, where it says `old`."""
        parts = next(parts for parts in self.events(step, kind) if old in "".join(parts.values()))
        text = "".join(parts.values()).replace(old, new)
        for key, before in list(parts.items())[:-1]:
            self.client.set_tag(self.delivery, key, text[: len(before)])
            text = text[len(before) :]
        self.client.set_tag(self.delivery, list(parts)[-1], text)
        self.undo.append(lambda: self.put_back(parts))

    def put_back(self, parts: Mapping[str, str]) -> None:
        for key, text in parts.items():
            self.client.set_tag(self.delivery, key, text)

    def add(self, step: str, kind: str, **data: object) -> None:
        """An event of the right look, behind all others."""
        event = Event(at=datetime(2026, 1, 1, tzinfo=UTC), step=step, kind=kind, message="", data=data)
        key = f"{EVENT}9001.1of1.forged0"
        self.client.set_tag(self.delivery, key, event.model_dump_json())
        self.undo.append(lambda: self.client.delete_tag(self.delivery, key))

    def take_out(self, step: str, kind: str) -> None:
        """Delete the first event of that step and kind."""
        parts = self.events(step, kind)[0]
        for key in parts:
            self.client.delete_tag(self.delivery, key)
        self.undo.append(lambda: self.put_back(parts))

    def swap(self, path: str, text: str) -> None:
        """Put another file in the place of one that was kept."""
        before, (folder, _, name) = self.kept(path), path.rpartition("/")
        assert text != before
        self.put(folder, name, text)
        self.undo.append(lambda: self.put(folder, name, before))

    def put(self, folder: str, name: str, text: str) -> None:
        """Put a file where others are kept."""
        with TemporaryDirectory() as there:
            path = Path(there) / name
            path.write_text(text)
            self.client.log_artifact(self.delivery, str(path), folder)

    def kept(self, path: str) -> str:
        """A file that was kept."""
        with TemporaryDirectory() as there:
            return Path(self.client.download_artifacts(self.delivery, path, there)).read_text()


def _event(text: str) -> dict[str, Any] | None:
    told = json.loads(text.partition("\n")[0])
    event = told.get("event", told)
    return event if isinstance(event, dict) else None


@pytest.fixture
def scene(tidegate: Tidegate, on_clusters: Callable[..., Clusters], name: str, state: Path) -> Scene:
    """Two regions one after the other."""
    asks = {"before": "promote", "region": REGIONS[1], "by": "names"}
    on_clusters(*REGIONS, change=lambda spec: spec.update(approvals=[asks]))
    opened = tidegate("stage", "open", "delivery.yaml")
    assert opened.code == 0, opened.err
    scene = Scene(tidegate, opened.out.strip(), name, state)
    for step in DONE:
        taken = tidegate("stage", step, "--delivery", scene.delivery)
        assert taken.code == 0, taken.err
    _judge(scene)
    assert scene.audit().code == 0
    return scene


def _judge(scene: Scene) -> None:
    """A step that judged by evidence, as a canary does it: its transcript is kept, and its verdict names it."""
    text = "".join(f'{{"batch": {number}}}\n' for number in range(4))
    scene.put("evidence", TRANSCRIPT.name, text)
    transcripts = {TRANSCRIPT.stem: (len(text), sha256(text.encode()).hexdigest())}
    ledger = MlflowDeliveries(embedded_uri(scene.state)).join(scene.delivery)
    at, step = datetime.now(UTC), "offline@eu-west-1"
    data = {"gate": "latency", "outcome": "pass", "reason": "", "numbers": {}, "transcripts": transcripts}
    ledger.append(Event(at=at, step=step, kind="verdict", message="", data=data))
    ledger.append(Event(at=at, step=step, kind="done", message=""))


def forged_done(scene: Scene) -> None:
    scene.add(NEXT, "done")


def unreadable_ending(scene: Scene) -> None:
    scene.add("delivery", "closed", exit_code="none")


def taken_out(scene: Scene) -> None:
    scene.take_out("build", "done")


def edited_verdict(scene: Scene) -> None:
    scene.edit("offline@eu-west-1", "verdict", '"outcome":"pass"', '"outcome":"fail"')


def swapped_spec(scene: Scene) -> None:
    scene.swap("spec/delivery.yaml", scene.kept("spec/delivery.yaml").replace("max_drop: 0.1", "max_drop: 0.9"))


def added_file(scene: Scene) -> None:
    scene.put("spec", "trust.yaml", "kind: Trust")
    (planted,) = scene.state.rglob(f"{scene.delivery}/**/spec/trust.yaml")
    scene.undo.append(planted.unlink)


def forged_transcript(scene: Scene) -> None:
    scene.swap(str(TRANSCRIPT), scene.kept(str(TRANSCRIPT)).replace("2", "7"))


def cut_transcript(scene: Scene) -> None:
    scene.swap(str(TRANSCRIPT), scene.kept(str(TRANSCRIPT))[: len('{"batch": 0}\n')])


@dataclass(frozen=True)
class Found:
    """What is said about one of them."""

    step: str
    audit: str


INSERTED = Found("is not genuine: inserted", "inserted: ")
CHANGED = Found("is not genuine: removed: before", "removed: before")
FILES = "its kept files are not those it was opened with"
TABLE: dict[Callable[[Scene], None], Found] = {
    forged_done: INSERTED,
    unreadable_ending: INSERTED,
    taken_out: CHANGED,
    edited_verdict: CHANGED,
    swapped_spec: Found(f"{FILES}: changed: delivery.yaml", "changed: the spec"),
    added_file: Found(f"{FILES}: spec/trust.yaml is not among them", "changed: the spec"),
    forged_transcript: Found(f"the evidence of {TRANSCRIPT.stem} was changed after", f"changed: {TRANSCRIPT.stem}"),
    cut_transcript: Found(f"the evidence of {TRANSCRIPT.stem} was cut off after", f"removed: {TRANSCRIPT.stem}"),
}


@pytest.mark.slow(reason="a process for each step and each audit")
def test_the_next_step_and_the_audit_find_every_change(scene: Scene) -> None:
    missed: dict[str, str] = {}
    for tampers, found in TABLE.items():
        tampers(scene)
        said, audited = scene.step(), scene.audit()
        if (said.code, audited.code) != (5, 5) or found.step not in said.err or found.audit not in audited.out:
            missed[tampers.__name__] = f"{said.code}: {said.err}{audited.code}: {audited.out}"
        scene.undo.pop()()
        assert scene.audit().code == 0, f"{tampers.__name__} was not taken back"
    assert missed == {}
    assert scene.step().code == 0, "what was found has stopped a delivery that is whole again"


@pytest.mark.long
def test_an_image_tag_or_an_outcome_that_was_changed_counts_for_nothing_and_is_found(scene: Scene) -> None:
    registry = MlflowRegistry(embedded_uri(scene.state))
    other = f"registry.example/support-llm@sha256:{'6' * 64}"
    registry.mark(registry.resolve(scene.name, "challenger"), {ENGINE_IMAGE: other})
    for step in (NEXT, "bake@1", "deploy@us-east-1"):
        said = scene.tidegate("stage", step, "--delivery", scene.delivery)
        assert said.code == 0, said.err
    assert f"as planned; its tag {ENGINE_IMAGE} says {other} since" in said.err, said.err
    audited = scene.audit()
    assert (audited.code, f"says {other}; planned was" in audited.out) == (5, True)
    closed = scene.tidegate("stage", "close", "--delivery", scene.delivery)
    assert closed.code not in (0, 5), closed.err
    (key,) = [key for key in scene.client.get_run(scene.delivery).data.tags if key.endswith("outcome")]
    scene.client.set_tag(scene.delivery, key, "delivered")
    assert "lists say delivered" in scene.audit().out
