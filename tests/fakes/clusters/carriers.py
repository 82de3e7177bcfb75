"""People and processes who carry one delivery at the same time, each on a machine of its own, and what must hold then.

The commands' own code runs, from the ledger to the requests; the rules hold at every write in every region, no matter
who asks for it and in whatever order requests arrive.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.interleaving import Interleaving, Life
from fakes.clusters.region import NAME, ClusterRegion, KeptRegion, a_fleet, an_image
from fakes.clusters.world import DEMO, Images, canary_url, right, stable_url
from fakes.delivery.identities import FakeIdentities
from fakes.delivery.store import MemoryStore
from fakes.delivery.world import CHALLENGER, CHAMPION, AliasBook, NewEvidence, Recorder, a_version, planned
from fakes.kube.server import FakeTransport
from fakes.kube.store import Event

from pipelines.adapters.rollback_records import RollbackLedger
from pipelines.events.artifacts import Trials
from pipelines.events.journal import Journal
from pipelines.model import Ending, Result
from pipelines.plan.region_objects import rendering
from pipelines.run.context import Context
from pipelines.run.engine import deliver
from pipelines.run.resume import resume
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from registry.deliveries import MlflowDeliveries
from registry.errors import DeliveryLost
from registry.ledger import MlflowLedger
from registry.model import Alias, ModelVersion
from rollouts.cluster.carrier import GUARD, Carrier, carrier_number, read_lease
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.guard import WHO
from rollouts.cluster.model import version_labels
from rollouts.errors import NotTheCarrier
from rollouts.kube.resources import HTTP_ROUTES, LEASES, ROLLOUTS
from rollouts.manifests import conventions
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.errors import Refused
from tidegate.core.model import Json
from tidegate.core.spec import parse_spec
from tidegate.delivering import heartbeat
from tidegate.testing import FakeChat, FakeTokenizer
from tidegate.way_back import Rollback, observe_regions, outcome_of, roll_back, rollback_carrier


class Rules:
    """Looks at each write as the API server commits it."""

    def __init__(self, story: Interleaving, regions: Mapping[str, ClusterRegion]) -> None:
        self._story, self._regions = story, regions
        self._carriers: dict[Life, Carrier] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._aborted: set[str] = set()
        self._settled: dict[str, str] = {}
        self._settled_since = 0.0
        self._opened: dict[Life, float] = {}
        self._users_alone = False
        self.broken: list[str] = []
        """Which rules were broken, when, and by whom."""
        for name, region in regions.items():
            region.cluster.on_change(lambda event, name=name: self._look(name, event))  # type: ignore[misc]

    def knows(self, life: Life, carrier: Carrier) -> None:
        """That process carries the delivery, or would."""
        self._carriers[life] = carrier

    def opens(self, life: Life) -> None:
        """That process begins a delivery of its own just now."""
        self._opened[life] = self._story.time.elapsed

    def rollback_returned(self, since: float, *, users_alone: bool = False) -> None:
        """From now on no region may have users on a canary, nor ask for another version than it serves.

        A delivery that was opened after the rollback began, at `since`, is a new one: it may. With `users_alone` a
        region may ask: somebody slept through the rollback in the middle of a step, before he entered.
        """
        self._users_alone = users_alone
        self._settled_since = max(since, self._settled_since)
        if any(opened > since for opened in self._opened.values()):
            return
        for name, region in self._regions.items():
            self._settled[name] = region.versions()[0]
            if region.splits[-1] != (0, 0):
                self._say(name, f"a rollback returned, and the split is {region.splits[-1]}")

    def _look(self, region: str, event: Event) -> None:
        plural = event.kind.plural
        if plural == LEASES.plural and event.name == conventions.lease(NAME):
            self._one_holder(region, event)
        elif event.name == NAME and plural in (ROLLOUTS.plural, HTTP_ROUTES.plural):
            self._no_write_of_one_who_was_replaced(region, event)
            if plural == ROLLOUTS.plural:
                self._nothing_asked_for_again(region, event.after)
            else:
                self._no_users_again(region, event)

    def _one_holder(self, region: str, event: Event) -> None:
        """Anyone who takes a Lease has a number above that of the one who had it."""
        before, after = read_lease(event.before) if event.before else None, read_lease(event.after)
        if after.token:
            self._numbers[region, after.token] = after.number
        if before is None:
            return
        same = not before.token or not after.token or before.token == after.token
        if after.number < before.number or (after.number == before.number and not same):
            self._say(region, f"the Lease went from {before} to {after}")

    def _no_write_of_one_who_was_replaced(self, region: str, event: Event) -> None:
        asking = self._story.asking
        if asking is None or asking not in self._carriers:
            return
        carrier = self._carriers[asking]
        ours = self._numbers.get((region, carrier.token))
        if ours is None:
            # Users go back before the Lease is taken.
            if not carrier.insists:
                self._say(region, "wrote without the Lease")
        elif carrier_number(event.before) > ours:
            self._say(region, f"wrote with number {ours} onto number {carrier_number(event.before)}")

    def _nothing_asked_for_again(self, region: str, rollout: Json) -> None:
        if self._opened.get(self._story.asking, 0.0) > self._settled_since:  # type: ignore[arg-type]
            self._settled.pop(region, None)
        aborted = (rollout.get("status") or {}).get("abort")
        self._aborted.add(region) if aborted else self._aborted.discard(region)
        version, *_ = version_labels(rollout["spec"].get("template") or {})
        if not self._users_alone and version != self._settled.get(region, version):
            self._say(region, f"a rollback had returned, and version {version} is asked for")

    def _no_users_again(self, region: str, event: Event) -> None:
        weight = self._regions[region].weight_of
        before, after = weight(event.before) if event.before else 0, weight(event.after)
        if after > before and (region in self._aborted or region in self._settled):
            self._say(region, f"users went from {before} to {after} % after the abort")

    def _say(self, region: str, what: str) -> None:
        who = self._story.asking.name if self._story.asking else "the controller"
        self.broken.append(f"{self._story.time.elapsed:.3f} {who} in {region}: {what}")


USERS_PER_SECOND = 40.0
NEXT = "3"
"""The version after the challenger."""


def delivery_in(*waves: Sequence[str]) -> Delivery:
    """A spec with every stage that changes a region, each as short as its gates allow."""
    regions = [region for wave in waves for region in wave]
    spec = {
        "apiVersion": "tidegate/v1",
        "kind": "Delivery",
        "metadata": {"name": NAME},
        "model": {"name": NAME},
        "engine": {"vllm": {"version": "0.32.0"}},
        "gates": {"errors": {"max_increase": "5pp", "min_requests": 20}},
        "stages": [
            {"shadow": {"at_least": "2s", "within": "5m", "gates": ["errors"]}},
            {"canary": {"weights": [5, 50], "at_least": "2s", "within": "5m", "gates": ["errors"]}},
        ],
        "regions": {"waves": [list(wave) for wave in waves], "bake": "4s"},
        "metrics": {"scrape_interval": "2s"},
        "traffic": {"requests_per_second": USERS_PER_SECOND, "prompts": "prompts.txt"},
        "fleet": a_fleet(*regions).model_dump(mode="json", exclude_unset=True),
    }
    return parse_spec(yaml.safe_dump(spec), Delivery, file="delivery.yaml")


@dataclass(frozen=True)
class KeptPlace:
    """A place at one moment, for stories that begin there."""

    elapsed: float
    regions: Mapping[str, KeptRegion]
    store: MemoryStore
    champion: str


class Aliases(AliasBook):
    """The part of a registry that a rollback asks, too."""

    def look_up(self, _: str, wanted: str) -> ModelVersion:
        return a_version(self.champion if wanted == Alias.CHAMPION else wanted)


class Place:
    """Regions and an MLflow, which people of many machines reach."""

    def __init__(
        self,
        spec: Delivery,
        folder: Path,
        *,
        seed: int = 0,
        lost: float = 0.0,
        like: KeptPlace | None = None,
        later: float = 0.0,
    ) -> None:
        """With `like` it begins as that one was, so many seconds `later`."""
        self.spec, self._folder = spec, folder
        self.story = Interleaving(seed, lost=lost, begins_at=like.elapsed + later if like else 0.0)
        self.time = self.story.time
        fleet = spec.fleet
        assert isinstance(fleet, ArgoFleetSpec), "the spec is for this machine"
        self.regions = {
            name: ClusterRegion(
                name,
                spec=fleet,
                time=self.time,
                render=rendering(spec, fleet, name),
                users_per_second=USERS_PER_SECOND,
                like=like.regions[name] if like else None,
            )
            for name in spec.regions.names
        }
        self.store = like.store.copied() if like else MemoryStore()
        self.aliases = Aliases()
        self.aliases.champion = like.champion if like else CHAMPION
        self.evidence = NewEvidence()
        for version in (CHAMPION, CHALLENGER, NEXT):
            for role in ("stable", "shadow", "canary"):
                self.evidence.serves(role, version, per_second=USERS_PER_SECOND)
        self.recorder = Recorder()
        self.rules = Rules(self.story, self.regions)

    def kept(self) -> KeptPlace:
        """As it is now."""
        regions = {name: region.kept() for name, region in self.regions.items()}
        return KeptPlace(self.time.elapsed, regions, self.store.copied(), self.aliases.champion)

    def when(self, step: str, kind: str, reaction: Callable[[], object]) -> None:
        """Call `reaction` the first time that anybody's step says that kind of thing."""
        self.recorder.reactions[step, kind] = reaction

    def stable_versions(self) -> dict[str, str]:
        """What users of each region are on."""
        return {name: region.versions()[0] for name, region in self.regions.items()}

    def deliveries(self, life: Life) -> MlflowDeliveries:
        """MLflow, as that process reaches it."""

        def turn() -> None:
            life.go_on()
            self.story.sleep(max(self.story.latency(), life.asleep_until - self.time.elapsed))
            life.go_on()

        return MlflowDeliveries(self.store.reached_by(turn), self.time, host=life.name, pid=1, sleep=self.story.sleep)

    @asynccontextmanager
    async def fleets(self, life: Life, carrier: Carrier | None) -> AsyncIterator[Mapping[str, ArgoFleet]]:
        """As `open_clusters`, of that process."""
        fleets = {
            name: region.open(carrier=carrier, transport=self.story.transport(FakeTransport(region.api), life))
            for name, region in self.regions.items()
        }
        if carrier is not None:
            self.rules.knows(life, carrier)
        beats = [asyncio.ensure_future(fleet.keep_renewing()) for fleet in fleets.values() if carrier]
        try:
            yield fleets
        finally:
            for beat in beats:
                beat.cancel()
            await asyncio.gather(*beats, return_exceptions=True)
            if carrier:
                await asyncio.gather(*(fleet.leave() for fleet in fleets.values()))

    async def deliver(self, life: Life, version: str = CHALLENGER) -> Ending | None:
        """`tidegate deliver`; None when it may not, or somebody replaced it before it began."""
        mine = self.deliveries(life)
        try:
            # As the command: the plan is made by what the registry says before the ledger is opened.
            plan = planned(self.spec, 0, version, self.aliases.champion)

            def opened() -> MlflowLedger:
                ledger = mine.open_delivery(plan.version, plan.champion, spec_digest="s")
                self.rules.opens(life)
                return ledger

            return await self._carried(life, opened, lambda context: deliver(replace(context, plan=plan)))
        except Refused:
            return None

    async def resume(self, life: Life, delivery: str) -> Ending | None:
        """`tidegate resume`; None as above."""
        mine = self.deliveries(life)
        return await self._carried(life, lambda: mine.take_over(delivery), resume)

    async def guard(self, life: Life) -> None:
        """The guard of every region, until the task is cancelled."""
        carrier = Carrier(token=GUARD, who=WHO)
        self.rules.knows(life, carrier)
        loops = [
            region.guard(transport=self.story.transport(FakeTransport(region.api), life)).run()
            for region in self.regions.values()
        ]
        await asyncio.gather(*loops)

    async def rollback(self, life: Life, *, mlflow: bool = True) -> int:
        """`tidegate rollback`, where MLflow answers or does not; its exit code."""
        state = StateFolder(self._folder / life.name)
        async with (
            self.fleets(life, rollback_carrier(self.spec)) as fleets,
            self.fleets(life, None) as watched,
        ):
            records = _Records(self, life, state.root, "memory:" if mlflow else None)
            back = Rollback(self.spec, state, fleets, watched, records, _engine_before, self.time)
            wrong = await roll_back(back)
            outcome = outcome_of(wrong, await observe_regions(back))
            print(*(f"{region}: version {version}" for region, version in outcome.versions.items()), sep="\n")
            print(*outcome.wrong, sep="\n", file=sys.stderr)
            return outcome.exit_code

    async def _carried(
        self, life: Life, take: Callable[[], MlflowLedger], carry: Callable[[Context], Awaitable[Result]]
    ) -> Ending | None:
        try:
            ledger = await self.story.process(take)
            unattended = self.spec.fleet.unattended.total_seconds()
            carrier = Carrier(token=ledger.owner, who="test", over=ledger.over, unattended_seconds=unattended)
            async with self.fleets(life, carrier) as fleets:
                journal = Journal(ledger, self.time, [self.recorder], registry=self.aliases)
                async with heartbeat(journal.beat, self.time):
                    result = await carry(self._context(journal, fleets, life))
        except (Refused, DeliveryLost, NotTheCarrier):
            return None
        return result.ending

    def _context(self, journal: Journal, fleets: Mapping[str, ArgoFleet], life: Life) -> Context:
        urls = [url(region) for region in self.regions for url in (stable_url, canary_url)]
        return Context(
            spec=self.spec,
            plan=planned(self.spec, 0),
            stages=STAGES,
            folder=DEMO,
            clock=self.time,
            journal=journal,
            registry=self.aliases,
            engines=Images(),
            fleets=fleets,
            chat=FakeChat(dict.fromkeys(urls, right)),
            tokenizer=FakeTokenizer(),
            proxy=self.evidence,
            trials=Trials(self._folder / life.name, journal),
            own=self._folder / life.name,
            identities=FakeIdentities(),
        )


class _Records(RollbackLedger):
    """MLflow as that process reaches it."""

    def __init__(self, place: Place, life: Life, state: Path, tracking_uri: str | None) -> None:
        super().__init__(place.spec, state, tracking_uri)
        self.__dict__.update(place=place, life=life)

    def _ledgers(self) -> MlflowDeliveries:
        place: Place = self.__dict__["place"]
        return place.deliveries(self.__dict__["life"])

    def registry(self) -> Any:
        return self.__dict__["place"].aliases


async def _engine_before(_: object, version: str) -> Engine:
    return an_image(version, digest=a_version(version).digest)


def in_story_time(monkeypatch: pytest.MonkeyPatch, story: Interleaving) -> None:
    """No thread runs next to the story, and nothing waits for this machine's clock."""
    for module in ("tidegate.core.threads", "pipelines.events.writer"):
        monkeypatch.setattr(f"{module}.Thread", story.threads)
    monkeypatch.setattr("pipelines.events.writer.HOLD_SECONDS", 0.0)


async def serve_champion(place: Place) -> None:
    """Every region serves it, and nobody carries anything there."""
    for region in place.regions.values():
        await region.fleet.deploy(an_image(CHAMPION, digest=a_version(CHAMPION).digest))
        await region.fleet.leave()
