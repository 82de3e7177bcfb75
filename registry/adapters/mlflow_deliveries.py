"""The deliveries of an MLflow store: opens one at a time for each model, and lists them all."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TypedDict
from uuid import uuid4

from registry.adapters.mlflow_ledger import NOT_ENDED, MlflowLedger
from registry.adapters.mlflow_runs import summary_of
from registry.adapters.mlflow_store import Store, open_store
from registry.adapters.processes import may_act, this_machine
from registry.chain import Believed, ChainFinding, Seal
from registry.conventions import (
    CHAMPION,
    HEARTBEAT,
    HOST,
    IN_PRODUCTION,
    KEY,
    MACHINE,
    MODEL,
    MOST_ARTIFACT_BYTES,
    ON_TRIAL,
    OUTCOME,
    OWNER,
    PATIENCE,
    PID,
    REASON,
    STATE,
    VERSION,
    experiment_name,
)
from registry.errors import DeliveryRuns, LedgerForged, StoreUnreachable, UnknownDelivery
from registry.model import DeliverySummary, Event, ModelVersion, StoredRun
from registry.ownership import (
    CLAIM_SECONDS,
    LIVE_SECONDS,
    Claim,
    Standing,
    claims_in,
    contest,
    life_of,
    standing,
    why_dead,
)
from registry.record import LedgerRecord, read_events, read_record
from tidegate.core.clock import WATCH_SECONDS, Clock, Life, SystemClock, Watch
from tidegate.core.errors import NotGenuine, Refused, UsageError

log = logging.getLogger(__name__)

OPENING, RUNNING = "opening", "running"
"""Of `STATE`: written before the contest with others, and after it was won."""
PATIENCE_SECONDS = LIVE_SECONDS + WATCH_SECONDS
"""How long the older of two that open at once waits for the younger to withdraw or win.

Longer than one that died before it withdrew is taken to live, or both would go: then nobody delivers.
"""
BEAT_SECONDS = 10.0
"""Between two signs of life of the one that waits."""
LOOK_SECONDS = 0.1
"""Between two looks at the others."""
SIGN_SECONDS = 2.0
"""Between two looks for a sign of life."""


class Keys(TypedDict):
    """How a ledger's events are signed, and whose signatures are asked for."""

    seal: Seal | None
    believed: Believed | None


class MlflowDeliveries:
    """Opens and reads ledgers in one MLflow tracking store, which may be shared by many machines."""

    def __init__(
        self,
        tracking_uri: str,
        clock: Clock | None = None,
        *,
        host: str | None = None,
        pid: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
        seal: Seal | None = None,
        believed: Believed | None = None,
        store: Store | None = None,
    ) -> None:
        """`host` and `pid` say who opens; they are this process unless given. `seal` signs what it writes, and
        `believed` are those whose signatures are asked for. `store` is the one at the address.
        """
        self._keys: Keys = {"seal": seal, "believed": believed}
        self._given = store
        self._gone: set[str] = set()
        self._told: set[str] = set()
        self._watch = Watch()
        self._uri = tracking_uri
        self._clock = clock or SystemClock()
        self._host, self._machine = host or socket.gethostname(), host or this_machine()
        self._pid = pid or os.getpid()
        self._sleep = sleep

    @cached_property
    def _store(self) -> Store:
        return self._given or open_store(self._uri)

    def open_delivery(
        self,
        version: ModelVersion,
        champion: ModelVersion | None,
        *,
        spec_digest: str,
        patience: timedelta = timedelta(0),
        key: str | None = None,
        engines: tuple[str, str] | None = None,
    ) -> MlflowLedger:
        """Begin the only delivery of this model, after closing those that died as `interrupted`.

        Args:
            version: what is delivered.
            champion: the version that serves now.
            spec_digest: of the file that describes the delivery.
            patience: how long nothing may be heard of it, when many processes will carry it one after the other.
            engines: the names of what is delivered and what serves, where these are not their versions' numbers.
            key: of the one who opens; a delivery that it has opened before and that is not over is joined instead.

        Raises:
            DeliveryRuns: another one lives; names its id, host, process and start.
        """
        while others := [other for other, _ in self._live(version.name)]:
            for other in filter(self.is_alive, others):
                if key is not None and other.key == key:
                    return self.join(other.id)
                raise _refusal(other)
            self._wait_for_signs(others[0])
        more = {PATIENCE: f"{patience.total_seconds():g}"} if patience else {}
        more |= dict(zip((ON_TRIAL, IN_PRODUCTION), engines, strict=True)) if engines else {}
        run = self._create(version, champion, spec_digest, more | ({KEY: key} if key else {}))
        try:
            self._win(run.id, version.name)
        # Whatever it was: a run that stays open would look like a delivery.
        except BaseException:
            self._withdraw(run.id)
            raise
        owner = run.tags[OWNER]
        return MlflowLedger(self._store, run, self._clock, owner=owner, over=frozenset(self._gone), **self._keys)

    def refuse_live(self, name: str) -> None:
        """Look for a live delivery of the model; those that died stay as they are.

        Raises:
            DeliveryRuns: as `open_delivery`.
        """
        for _, found in self._readable(self._runs(name, status=NOT_ENDED)):
            if self.is_alive(found):
                raise _refusal(found)

    def join(self, delivery: str, *, carries: bool = True) -> MlflowLedger:
        """The ledger of a delivery that another process opened; events of both stand in it.

        Args:
            delivery: its id.
            carries: whether what is written is a sign that the delivery lives; not what somebody says from outside.

        Raises:
            UnknownDelivery: no ledger has that id.
        """
        run, writer = self._run(delivery), _writer()
        return MlflowLedger(self._store, run, self._clock, writer=writer, carries=carries, **self._keys)

    def take_over(self, delivery: str, *, patience: timedelta = timedelta(0), key: str | None = None) -> MlflowLedger:
        """Carry on a delivery; processes that carried it before are refused whatever they write from now on.

        Raises:
            Refused: it is over, or a process still shows that it carries it.
            UnknownDelivery: no ledger has that id.
        """
        # One look for all: who replaced the owner after it must not be replaced for having been silent before.
        run, known, dead = self._given_up(delivery)
        claim = Claim(mark=uuid4().hex, made=self._clock.now(), over=run.tags.get(OWNER, ""))
        self._claim(claim, known, dead)
        marks = {
            OWNER: claim.mark,
            HOST: self._host,
            PID: str(self._pid),
            MACHINE: self._machine,
            HEARTBEAT: self._clock.now().isoformat(),
            PATIENCE: f"{patience.total_seconds():g}",
            KEY: key or "",
        }
        self._store.runs.log(delivery, tags=marks | claim.withdrawn)
        run = self._run(delivery)
        if run.tags.get(OWNER) != claim.mark:
            raise _refusal(summary_of(run))
        over = frozenset({claim.over} - {""})
        return MlflowLedger(self._store, run, self._clock, writer=_writer(), owner=claim.mark, over=over, **self._keys)

    def _given_up(self, delivery: str) -> tuple[StoredRun, DeliverySummary, Collection[Claim]]:
        """A delivery as it is once it is clear that no process carries it, and claims whose processes died too.

        Raises:
            Refused: it is over, or a process carries it.
        """
        while True:
            run = self._run(delivery)
            known = summary_of(run)
            if known.ended is not None:
                raise Refused(
                    f"delivery {delivery} is over: {known.outcome}: {known.reason}",
                    hint="`tidegate deliver` begins another",
                )
            # One that many processes carry may have none just now; while one works, it is heard of every few seconds.
            patience = min(known.patience_seconds, LIVE_SECONDS)
            life = self._life(known.model_copy(update={"patience_seconds": patience}))
            if life is Life.ALIVE:
                raise _refusal(known)
            claims = [each for each in claims_in(run.tags) if each.over == run.tags.get(OWNER, "")]
            now = self._clock.monotonic()
            watched = min((self._watch.sees(each.mark, each, now)[0] for each in claims), default=WATCH_SECONDS)
            if life is Life.DEAD and watched >= WATCH_SECONDS:
                return run, known, claims
            self._wait_for_signs(known)

    def _wait_for_signs(self, other: DeliverySummary) -> None:
        if other.id not in self._told:
            log.warning(
                "delivery %s of %s: last heard of at %s UTC; waiting %.0f s for a sign that it is alive",
                other.id, other.name, f"{other.heartbeat:%F %T}", WATCH_SECONDS,
            )  # fmt: skip
        self._told.add(other.id)
        self._sleep(SIGN_SECONDS)

    def _claim(self, claim: Claim, known: DeliverySummary, dead: Collection[Claim]) -> None:
        """Return once nobody else may carry the delivery on. A claim that is refused is withdrawn.

        Raises:
            Refused: somebody else does, or came first.
        """
        until = self._clock.monotonic() + CLAIM_SECONDS
        self._store.runs.log(known.id, tags=claim.tag)
        try:
            self._wait_for(claim, known, dead, until)
        except BaseException:
            # One that cannot be withdrawn runs out by itself.
            with suppress(StoreUnreachable):
                self._store.runs.log(known.id, tags=claim.withdrawn)
            raise

    def _wait_for(self, claim: Claim, known: DeliverySummary, dead: Collection[Claim], until: float) -> None:
        while True:
            run = self._run(known.id)
            if run.status != NOT_ENDED:
                raise Refused(
                    f"delivery {known.id} is over: {run.tags.get(OUTCOME)}: {run.tags.get(REASON)}",
                    hint="`tidegate deliver` begins another",
                )
            where = standing(claim, run.tags, dead)
            if where is Standing.LOST or self._clock.monotonic() > until:
                raise Refused(
                    f"delivery {known.id} of {known.name} is being carried on by another process",
                    hint="see `tidegate status`",
                )
            if where is Standing.WON:
                return
            self._sleep(LOOK_SECONDS)

    def whole_id(self, given: str) -> str:
        """The id of the one delivery whose id begins with `given`, as lists show it; a whole id is taken as it is.

        Raises:
            UnknownDelivery: no delivery of a registered model has such an id.
            UsageError: several have, or it is shorter than lists show it.
        """
        if len(given) >= ID_CHARACTERS:
            return given
        if len(given) < SHORT_ID:
            raise UsageError(
                f"delivery: found {given!r}; expected an id, or at least its first {SHORT_ID} characters",
                hint="`tidegate status --last 20` lists them",
            )
        names = self._store.models.names_like("", MOST_MODELS)
        found = sorted({run.id for name in names for run in self._runs(name) if run.id.startswith(given)})
        if len(found) > 1:
            raise UsageError(
                f"delivery: found {given}, with which {len(found)} ids begin; expected one of {', '.join(found)}",
                hint="give more characters",
            )
        if not found:
            raise _unknown(given)
        return found[0]

    def summary(self, delivery: str) -> DeliverySummary:
        """One delivery as lists show it.

        Raises:
            UnknownDelivery: no ledger has that id.
        """
        return summary_of(self._run(delivery))

    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]:
        """Every delivery of the model, or the `last` so many, newest first; an empty list when there was none.

        A run that cannot be read is none; it is told in one line.
        """
        runs = self._runs(name, last)
        found = [summary for _, summary in self._readable(runs)]
        if last is not None and len(found) < len(runs) == last:
            # Others may be behind what somebody put before them.
            found = [summary for _, summary in self._readable(self._runs(name))]
        return found[:last]

    def events(self, delivery: str) -> list[Event]:
        """What a delivery's ledger holds, oldest first."""
        return read_events(self._run(delivery).tags)

    def record(self, delivery: str) -> tuple[LedgerRecord, list[ChainFinding]]:
        """The chain of a delivery as it stands, and everything that shows that it is not what was written."""
        record = read_record(self._run(delivery).tags)
        return record, record.findings(delivery, self._keys["believed"])

    def fetch(self, delivery: str, folder: str, into: Path, named: Collection[str] | None = None) -> list[Path]:
        """Copy the files below one folder of a delivery's artifacts; none when there is no such folder or delivery.

        Returns where each would be; only those `named`, or all for None, were copied.

        Raises:
            NotGenuine: one of them is larger than any that is kept.
        """
        run = self._store.runs.run(delivery)
        found = self._store.artifacts.files(run, folder) if run else {}
        for path, size in found.items():
            if run is None or (named is not None and path not in named):
                continue
            if size > MOST_ARTIFACT_BYTES:
                raise NotGenuine(
                    f"delivery {delivery}: {path} has {size:,} bytes; none of its files has more than "
                    f"{MOST_ARTIFACT_BYTES:,}",
                    hint="find out who wrote it into the run's artifacts; then deliver the version again",
                )
            self._bring(run, path, into / path)
        return [into / path for path in found]

    def is_alive(self, delivery: DeliverySummary) -> bool:
        """Whether it has not ended and its process still shows signs of life.

        That it shows none may be a matter of two clocks: before anything is done about it, `open_delivery` and
        `take_over` watch it for `WATCH_SECONDS`.
        """
        return delivery.ended is None and self._life(delivery) is Life.ALIVE

    def _life(self, delivery: DeliverySummary) -> Life:
        return life_of(delivery, self._watch, self._clock, machine=self._machine, process_exists=may_act)

    def _bring(self, run: StoredRun, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._store.artifacts.download(run, path, target)

    def _run(self, delivery: str) -> StoredRun:
        # Bytes of a command line that are no text are refused by some stores, and looked for by others.
        run = self._store.runs.run(delivery) if delivery.isascii() else None
        if run is None or MODEL not in run.tags:
            raise _unknown(delivery)
        return run

    def _create(
        self, version: ModelVersion, champion: ModelVersion | None, spec_digest: str, more: Mapping[str, str]
    ) -> StoredRun:
        now = self._clock.now()
        tags = {
            MODEL: version.name,
            VERSION: version.version,
            HOST: self._host,
            PID: str(self._pid),
            MACHINE: self._machine,
            HEARTBEAT: now.isoformat(),
            STATE: OPENING,
            OWNER: uuid4().hex,
            **({CHAMPION: champion.version} if champion else {}),
            **more,
        }
        params = {
            "model": version.name,
            "version": version.version,
            "digest": version.digest,
            "champion": champion.version if champion else "none",
            "spec_digest": spec_digest,
        }
        return self._store.runs.create_run(
            experiment_name(version.name),
            name=f"{version.name} {version.version} {now:%Y-%m-%d %H:%M:%S}",
            started=round(now.timestamp() * 1000),
            tags=tags,
            params=params,
        )

    def _win(self, run_id: str, name: str) -> None:
        """Return when no other delivery of the model can go on; see `contest`.

        MLflow has no compare-and-set, so nobody can take a lock: everyone writes first and looks second.
        """
        begun = beaten = self._clock.monotonic()
        while True:
            mine = self.summary(run_id)
            others = [(other, won) for other, won in self._live(name) if other.id != run_id]
            if not others:
                break
            winner = contest(mine, others)
            now = self._clock.monotonic()
            if winner is not None or now - begun > PATIENCE_SECONDS:
                raise _refusal(winner or others[0][0])
            if now - beaten >= BEAT_SECONDS:
                self._store.runs.log(run_id, tags={HEARTBEAT: self._clock.now().isoformat()})
                beaten = now
            self._sleep(LOOK_SECONDS)
        self._store.runs.log(run_id, tags={STATE: RUNNING})

    def _withdraw(self, run_id: str) -> None:
        """A delivery that never began leaves nothing in the lists."""
        try:
            self._store.runs.delete_run(run_id)
        except StoreUnreachable:
            return  # its heartbeat never moves again, so others take it for dead

    def _live(self, name: str) -> Iterator[tuple[DeliverySummary, bool]]:
        """Those that live, or may live, with whether each has won; those that died are closed on the way."""
        for found, summary in self._readable(self._runs(name, status=NOT_ENDED)):
            # A dead one is looked at once more: it may have been taken over, or closed, while the others were.
            run = found if self._life(summary) is not Life.DEAD else self._run(found.id)
            delivery = summary_of(run)
            if delivery.ended is not None:
                continue
            if self._life(delivery) is not Life.DEAD:
                yield delivery, run.tags.get(STATE) != OPENING
            else:
                self._gone.add(run.tags.get(OWNER, ""))
                MlflowLedger(self._store, run, self._clock).close(
                    delivery.outcome or "interrupted", delivery.reason or why_dead(delivery)
                )

    def _readable(self, runs: Iterable[StoredRun]) -> Iterator[tuple[StoredRun, DeliverySummary]]:
        """Those that are deliveries; every other one is told of once."""
        for run in runs:
            try:
                yield run, summary_of(run)
            except LedgerForged as error:
                if run.id not in self._told:
                    log.warning("%s", error)
                self._told.add(run.id)

    def _runs(self, name: str, last: int | None = None, *, status: str | None = None) -> Sequence[StoredRun]:
        return self._store.runs.search_runs(experiment_name(name), {MODEL: name}, status=status, last=last)


ID_CHARACTERS = 32
"""Of a run's id in MLflow."""
SHORT_ID = 8
"""Characters of it that lists show."""
MOST_MODELS = 1000
"""Whose deliveries are looked through for the beginning of an id."""


def _unknown(delivery: str) -> UnknownDelivery:
    return UnknownDelivery(f"there is no delivery {delivery}", hint="`tidegate status --last 20` lists them")


def _writer() -> str:
    """Tells the events of one process from those of others."""
    return uuid4().hex[:8]


def _refusal(other: DeliverySummary) -> DeliveryRuns:
    # The process that was heard of last may be one whose step is done.
    steps = f"step by step, heard of at {other.heartbeat:%T} UTC"
    carried = steps if other.patience_seconds else f"on {other.host} (process {other.pid})"
    return DeliveryRuns(
        f"delivery {other.id} of {other.name} runs since {other.started:%F %T} UTC {carried}",
        hint="see `tidegate status`, wait for it, or roll it back with `tidegate rollback`",
    )
