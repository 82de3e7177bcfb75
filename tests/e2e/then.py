"""What must be so after a story, at once or in the end."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

import httpx
from e2e.spec import MODEL, REGION
from e2e.story import Story
from fakes.waiting import until

from gates.transcript import VerdictsLine, read, replay
from registry.mlflow_client import open_client
from rollouts.local.locks import Layout
from rollouts.model import RegionPhase


class Then:
    """What must be so, at once or in the end."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._machine = story.machine

    def exits(self, code: int) -> None:
        ended = self._story.ended()
        assert ended.code == code, f"exit {ended.code}:\n{ended.out}\n{ended.err}"
        assert "Traceback" not in ended.err, ended.err

    def region_serves(self, version: str) -> None:
        """That version alone; a previous one may be warm."""

        def alone() -> bool:
            state = self._story.region()
            stable = state.stable.version if state.stable else None
            return (
                state.phase is RegionPhase.STEADY and stable == version and state.canary is None and state.weight == 0
            )

        until(f"{REGION} serves version {version} alone", alone)

    def no_engine_of(self, version: str) -> None:
        """None runs that version, wherever it was started."""
        digest = self._machine.registry.resolve(MODEL, version).digest
        folder = str(self._machine.state / "engines" / digest)
        until(
            f"the engines of version {version} have ended",
            lambda: folder not in [process.cwd() for process in self._machine.processes()],
        )

    def nothing_runs(self) -> None:
        """No process is left of any command of this machine."""
        self._machine.nothing_runs()

    def aliases(self, **expected: str | None) -> None:
        """Which version each alias is on; None for none."""
        versions = self._machine.registry.versions(MODEL)
        found = {alias: version.version for version in versions for alias in version.aliases}
        assert {alias: found.get(alias) for alias in expected} == expected

    def ledger_says(self, outcome: str, reason: str = "") -> None:
        """Of the newest delivery; `reason` is a part of what is written."""
        last = self._machine.deliveries.deliveries(MODEL)[0]
        assert (last.outcome, last.ended is not None) == (outcome, True), last
        assert last.reason and reason in last.reason, last.reason
        assert "\n" not in last.reason, "a reason is one line"

    def the_one_before_is_closed_as(self, outcome: str, reason: str) -> None:
        before = self._machine.deliveries.deliveries(MODEL)[1]
        assert before.outcome == outcome and reason in (before.reason or ""), before

    def run_shows(self, status: str) -> None:
        """What a person sees in MLflow's own list: the run's status, with numbers and the report in it."""
        client = open_client(self._machine.tracking_uri)
        run = client.get_run(self._machine.deliveries.deliveries(MODEL)[0].id)
        assert run.info.status == status
        assert f"{REGION}/latency.ttft_p50_canary_seconds" in run.data.metrics, sorted(run.data.metrics)
        assert {artifact.path for artifact in client.list_artifacts(run.info.run_id)} >= {"report.html", "events.jsonl"}

    def report_is_there(self) -> None:
        delivery = self._machine.deliveries.deliveries(MODEL)[0].id
        report = self._machine.state / "deliveries" / delivery / "report.html"
        assert f"report: {report}" in self._story.ended().out
        assert "<svg" in report.read_text(encoding="utf-8")

    def an_slo_counts(self, *, slo: str, edge: str) -> None:
        """Its rule has a value, and the rows of the heat map have this upper end; its gate let the version pass."""
        prometheus = json.loads(Layout(self._machine.state).record.read_text())["prometheus"]
        for query in (
            f'slo:sli_error:ratio_rate5m{{sloth_slo="{slo}"}}',
            f'tidegate:{slo}_seconds_bucket:rate1m{{le="{edge}", version="{self._story.challenger}"}}',
        ):
            found = httpx.get(f"{prometheus}/api/v1/query", params={"query": query}, trust_env=False).json()
            assert found["data"]["result"], query

    def a_replay_says_the_same(self, *trials: str) -> None:
        """Bit for bit, and as the delivery's own events have it; the audit elsewhere, with nothing but MLflow."""
        delivery = self._machine.deliveries.deliveries(MODEL)[0].id
        events = self._machine.state / "deliveries" / delivery / "events.jsonl"
        told = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
        said = [{"step": event["step"], **event["data"]} for event in told if event["kind"] == "verdict"]
        elsewhere = ("--state", str(self._machine.folder / "elsewhere"), "--tracking-uri", self._machine.tracking_uri)
        audited = self._machine.tidegate("audit", "verify", delivery, "--replay", "--output", "json", *elsewhere)
        assert audited.code == 0, f"{audited.out}\n{audited.err}"
        (found,) = json.loads(audited.out)
        assert set(found["judged_again"]) == set(trials)
        changes = self._changes(delivery, trials)
        assert changes and _verdicts(changes) <= _verdicts(said), _verdicts(changes) - _verdicts(said)

    def the_one_before_replays(self, *trials: str) -> None:
        """It left its evidence on this machine only, perhaps with half a line at the end."""
        self._changes(self._machine.deliveries.deliveries(MODEL)[1].id, trials)

    def _changes(self, delivery: str, trials: Sequence[str]) -> list[dict[str, str]]:
        """Every change of a verdict in the transcripts on this machine, which say the same again."""
        paths = (self._machine.state / "deliveries" / delivery / "evidence").glob("*.jsonl")
        held = {path.stem: list(read(StringIO(path.read_text(encoding="utf-8")), file=path.name)) for path in paths}
        assert held.keys() == set(trials)
        changes: list[dict[str, str]] = []
        for trial, lines in held.items():
            assert replay(lines, file=trial)[1] == []
            told: dict[str, str] = {}
            for line in (line for line in lines if isinstance(line, VerdictsLine)):
                changes += [
                    {"step": line.step, "gate": each.gate, "outcome": str(each.outcome), "reason": each.reason}
                    for each in line.verdicts
                    if told.get(each.gate) != str(each.outcome)
                ]
                told |= {each.gate: str(each.outcome) for each in line.verdicts}
            assert told, trial
        return changes

    def version_is_tagged(self, version: str, outcome: str, reason: str) -> None:
        tags = open_client(self._machine.tracking_uri).get_model_version(MODEL, version).tags
        assert tags["tidegate.outcome"] == outcome
        assert reason in tags["tidegate.reason"]

    def status_says(self, *parts: str, code: int = 0) -> None:
        """4 when a region cannot be observed or has no stable."""
        said = self._machine.tidegate("status")
        assert said.code == code, said.err
        assert [part for part in parts if part not in said.out] == [], said.out

    def another_delivery_is_refused(self) -> None:
        refused = self._machine.tidegate("deliver")
        assert refused.code == 2
        assert self._story.delivery is not None
        assert f"another delivery runs here (process {self._story.delivery.pid})" in refused.complaint

    def users_failed(self, count: int) -> None:
        """By their own count, once they have stopped."""
        failed, requests, cut = self._counted()
        self._story.measured(f"users: {failed} of {requests} failed, {cut} cut")
        assert requests > 0
        assert (failed, cut) == (count, 0), [request for request in self._story.requests() if not request.ok]

    def users_met(self, *versions: str) -> None:
        """Exactly those versions have answered users of this story."""
        assert {request.version for request in self._story.requests()} == set(versions)

    def _counted(self) -> tuple[int, int, int]:
        users = self._story.users
        assert users is not None, "there are no users in this story"
        if users.runs:
            users.send(signal.SIGINT)
        said = users.finish()
        found = re.search(r"(\d+) of (\d+) requests failed, (\d+) were cut", said.out)
        assert found, f"exit {said.code}: {said.out}{said.err}"
        failed, requests, cut = map(int, found.groups())
        return failed, requests, cut


def _verdicts(told: Iterable[Mapping[str, str]]) -> set[tuple[str, ...]]:
    return {tuple(each[name] for name in ("step", "gate", "outcome", "reason")) for each in told}
