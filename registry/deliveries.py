"""The deliveries of an MLflow store: opens one at a time for each model, and lists them all."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import uniform
from uuid import uuid4

from registry import conventions as tag
from registry.chain import Believed, ChainFinding, Seal
from registry.errors import DeliveryRuns, LedgerForged, StoreUnreachable, UnknownDelivery
from registry.ledger import MlflowLedger
from registry.model import DeliverySummary, Event, GoldenSet, ModelVersion, StoredRun
from registry.ports import Store
from registry.record import Carrier, LedgerRecord, claims_of, owner_of, read_record, summary_of
from tidegate.core.clock import WATCH_SECONDS, Clock, Life, SystemClock, Watch
from tidegate.core.errors import NotGenuine, Refused, UsageError

log = logging.getLogger(__name__)

LIVE_SECONDS = 60.0
"""A delivery whose heartbeat is older looks dead. A process beats every 10 s, and with every event."""
AGAIN_SECONDS = 2.0
"""At most, until one who met another that opened at the same moment tries again."""
SIGN_SECONDS = 2.0
"""Between two looks for a sign of life."""
ID_CHARACTERS = 32
"""Of a run's id in MLflow."""
SHORT_ID = 8
"""Characters of it that lists show."""


def this_machine() -> str:
    """The boot and the PID namespace of this process, as far as the system tells them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        import psutil

        return f"{socket.gethostname()} {psutil.boot_time():.0f}"


def _may_act(pid: int) -> bool:
    """Whether there is such a process here; one that is dead and waits for its parent to notice may not act."""
    # Needed for a delivery of this machine alone.
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class MlflowDeliveries:
    """Opens and reads ledgers in one MLflow tracking store, which may be shared by many machines."""

    def __init__(
        self,
        store: Store | str,
        clock: Clock | None = None,
        *,
        host: str | None = None,
        pid: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
        seal: Seal | None = None,
        believed: Believed | None = None,
    ) -> None:
        """`store` may be its address. `host` and `pid` say who opens; they are this process unless given. `seal` signs
        what it writes, and `believed` are those whose signatures are asked for.
        """
        if isinstance(store, str):
            # It takes a second to load.
            from registry.mlflow import MlflowStore

            store = MlflowStore(store)
        self._store: Store = store
        self._seal, self._believed, self._sleep = seal, believed, sleep
        self._gone, self._told, self._watch = set[str](), set[str](), Watch()
        self._clock = clock or SystemClock()
        self._host, self._machine = host or socket.gethostname(), host or this_machine()
        self._pid = pid or os.getpid()

    def open_delivery(
        self,
        version: ModelVersion,
        champion: ModelVersion | None,
        *,
        spec_digest: str,
        patience: timedelta = timedelta(0),
        key: str | None = None,
        engines: tuple[str, str] | None = None,
        golden: GoldenSet | None = None,
    ) -> MlflowLedger:
        """Begin the only delivery of this model, after closing those that died as `interrupted`.

        Args:
            version: what is delivered.
            champion: the version that serves now.
            spec_digest: of the file that describes the delivery.
            patience: how long it may be silent, when many processes will carry it one after the other.
            engines: the names of what is delivered and what serves, where these are not their versions' numbers.
            key: of the one who opens; a delivery that it has opened before and that is not over is joined instead.
            golden: the prompts that it asks both versions.

        Raises:
            DeliveryRuns: another one lives; names its id, host, process and start.
        """
        more = dict(zip((tag.ON_TRIAL, tag.IN_PRODUCTION), engines, strict=True)) if engines else {}
        while True:
            while others := list(self._live(version.name)):
                for other in filter(self.is_alive, others):
                    if key is not None and other.key == key:
                        return self.join(other.id)
                    raise _refusal(other)
                self._wait_for_signs(others[0])
            # Nobody can take a lock before there is a run: everyone writes first and looks second, so of two at least
            # the later one sees the other, and whoever sees another makes way.
            run = self._create(version, champion, spec_digest, more | {tag.CARRIER: self._carrier(patience, key)})
            is_alone = False
            try:
                is_alone = all(other.id == run.id for other in self._live(version.name))
            finally:
                if not is_alone:
                    # One that cannot be withdrawn has no heartbeat, so others take it for dead.
                    with suppress(StoreUnreachable):
                        self._store.delete_run(run.id)
            if is_alone:
                self._name_inputs(run.id, version, golden)
                return self._ledger(run, over=frozenset(self._gone))
            self._sleep(uniform(0, AGAIN_SECONDS))

    def refuse_live(self, name: str) -> None:
        """Look for a live delivery of the model; those that died stay as they are.

        Raises:
            DeliveryRuns: as `open_delivery`.
        """
        for _, found in self._readable(self._runs(name, status=tag.NOT_ENDED)):
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
        return self._ledger(self._run(delivery), writer=uuid4().hex[:8], carries=carries)

    def take_over(self, delivery: str) -> MlflowLedger:
        """Carry on a delivery; processes that carried it before are refused whatever they write from now on.

        MLflow lets nobody set a parameter again: of several, one gets the next number.

        Raises:
            Refused: it is over, or a process still shows that it carries it.
            UnknownDelivery: no ledger has that id.
        """
        before, known = self._given_up(delivery)
        said = self._carrier(timedelta(0), None)
        if self._store.claim(delivery, f"{tag.OWNER_PREFIX}{len(claims_of(before)) + 1:04}", said) != said:
            raise Refused(
                f"delivery {delivery} of {known.name} is being carried on by another process",
                hint="see `tidegate status`",
            )
        run = self._run(delivery)
        refuse_ended(summary_of(run))
        return self._ledger(run, writer=uuid4().hex[:8], over=frozenset({owner_of(before)}))

    def _carrier(self, patience: timedelta, key: str | None) -> str:
        return Carrier(
            at=self._clock.now(),
            host=self._host,
            pid=self._pid,
            machine=self._machine,
            patience_seconds=patience.total_seconds(),
            key=key,
        ).model_dump_json()

    def _ledger(
        self, run: StoredRun, *, writer: str = "", carries: bool = True, over: frozenset[str] = frozenset()
    ) -> MlflowLedger:
        return MlflowLedger(self._store, run, self._clock, writer, carries, over, self._seal, self._believed)

    def _given_up(self, delivery: str) -> tuple[StoredRun, DeliverySummary]:
        """A delivery as it is once it is clear that no process carries it.

        Raises:
            Refused: it is over, or a process carries it.
        """
        while True:
            run = self._run(delivery)
            known = summary_of(run)
            refuse_ended(known)
            # One that many processes carry may have none just now; one that works is heard of every few seconds.
            patience = min(known.patience_seconds, LIVE_SECONDS)
            life = self._life(known.model_copy(update={"patience_seconds": patience}))
            if life is Life.ALIVE:
                raise _refusal(known)
            if life is Life.DEAD:
                return run, known
            self._wait_for_signs(known)

    def _wait_for_signs(self, other: DeliverySummary) -> None:
        if other.id not in self._told:
            log.warning(
                "delivery %s of %s: last heard of at %s UTC; waiting %.0f s for a sign that it is alive",
                other.id, other.name, f"{other.heartbeat:%F %T}", WATCH_SECONDS,
            )  # fmt: skip
        self._told.add(other.id)
        self._sleep(SIGN_SECONDS)

    def whole_id(self, given: str) -> str:
        """The id of the one delivery whose id begins with `given`, as lists show it; a whole id is taken as it is.

        Raises:
            UnknownDelivery: no delivery has such an id, or it is shorter than lists show it.
            UsageError: several have.
        """
        if len(given) >= ID_CHARACTERS:
            return given
        if len(given) < SHORT_ID:
            raise _unknown(given)
        runs = self._store.runs_like(given) if given.isascii() and given.replace("-", "").isalnum() else []
        found = sorted(run.id for run in runs if run.id.startswith(given) and tag.MODEL in run.tags)
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
        return read_record(self._run(delivery).tags).events

    def record(self, delivery: str) -> tuple[LedgerRecord, list[ChainFinding]]:
        """The chain of a delivery as it stands, and everything that shows that it is not what was written."""
        record = read_record(self._run(delivery).tags)
        return record, record.findings(delivery, self._believed)

    def fetch(self, delivery: str, folder: str, into: Path, named: Collection[str] | None = None) -> list[Path]:
        """Copy the files below one folder of a delivery's artifacts; none when there is no such folder or delivery.

        Returns where each would be; only those `named`, or all for None, were copied.

        Raises:
            NotGenuine: one of them is larger than any that is kept.
        """
        run = self._store.run(delivery)
        if run is None:
            return []
        listed = self._store.listed(run.file(folder))
        found = {f"{folder}/{path}": size for path, size in listed.items()}
        for path, size in found.items():
            if named is not None and path not in named:
                continue
            if size > tag.MOST_ARTIFACT_BYTES:
                raise NotGenuine(
                    f"delivery {delivery}: {path} has {size:,} bytes; none of its files has more than "
                    f"{tag.MOST_ARTIFACT_BYTES:,}",
                    hint="find out who wrote it into the run's artifacts; then deliver the version again",
                )
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            self._store.fetch(run.artifacts, path, into / path)
        return [into / path for path in found]

    def is_alive(self, delivery: DeliverySummary) -> bool:
        """Whether it has not ended and its process still shows signs of life.

        That it shows none may be a matter of two clocks: before anything is done about it, `open_delivery` and
        `take_over` watch it for `WATCH_SECONDS`.
        """
        return delivery.ended is None and self._life(delivery) is Life.ALIVE

    def _life(self, delivery: DeliverySummary) -> Life:
        """Whether the process of one that has not ended may still act.

        The process table that knows its number tells at once; elsewhere only heartbeats do. Of a delivery that many
        processes carry the last may well be gone and the next not there yet: it is given the time it asked for.
        """
        if not delivery.patience_seconds and delivery.machine == self._machine and not _may_act(delivery.pid):
            return Life.DEAD
        # The silence of one is not that of those whom it replaced.
        sender, now, monotonic = f"{delivery.id} {delivery.owner}", self._clock.now(), self._clock.monotonic()
        allowed = delivery.patience_seconds or LIVE_SECONDS
        return self._watch.life(sender, delivery.heartbeat, now=now, monotonic=monotonic, allowed=allowed)

    def _run(self, delivery: str) -> StoredRun:
        # Bytes of a command line that are no text are refused by some stores, and looked for by others.
        run = self._store.run(delivery) if delivery.isascii() else None
        if run is None or tag.MODEL not in run.tags:
            raise _unknown(delivery)
        return run

    def _create(
        self, version: ModelVersion, champion: ModelVersion | None, spec_digest: str, more: Mapping[str, str]
    ) -> StoredRun:
        now = self._clock.now()
        tags = {
            tag.MODEL: version.name,
            tag.VERSION: version.version,
            tag.HEARTBEAT: now.isoformat(),
            tag.STATE: "running",
            **({tag.CHAMPION: champion.version} if champion else {}),
            **more,
        }
        params = {
            "model": version.name,
            "version": version.version,
            "digest": version.digest,
            "champion": champion.version if champion else "none",
            "spec_digest": spec_digest,
        }
        name = f"{version.name} {version.version} {now:%Y-%m-%d %H:%M:%S}"
        started = round(now.timestamp() * 1000)
        return self._store.create_run(
            tag.experiment_name(version.name), name=name, started=started, tags=tags, params=params
        )

    def _name_inputs(self, run_id: str, version: ModelVersion, golden: GoldenSet | None) -> None:
        """So that MLflow's UI shows them beside the run; no delivery ends because it cannot."""
        with suppress(StoreUnreachable):
            found = self._store.version(version.name, version.version)
            logged = found.logged if found else ""
            if logged or golden:
                self._store.log_inputs(run_id, logged, golden)

    def _live(self, name: str) -> Iterator[DeliverySummary]:
        """Those that live, or may live; those that died are closed on the way."""
        for found, summary in self._readable(self._runs(name, status=tag.NOT_ENDED)):
            # A dead one is looked at once more: it may have been taken over, or closed, while the others were.
            run = found if self._life(summary) is not Life.DEAD else self._run(found.id)
            delivery = summary_of(run)
            if delivery.ended is not None:
                continue
            if self._life(delivery) is not Life.DEAD:
                yield delivery
            else:
                self._gone.add(delivery.owner)
                outcome, reason = delivery.outcome or "interrupted", delivery.reason or why_dead(delivery)
                MlflowLedger(self._store, run, self._clock).close(outcome, reason)

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
        return self._store.search_runs(tag.experiment_name(name), {tag.MODEL: name}, status=status, last=last)


def why_dead(delivery: DeliverySummary) -> str:
    """The reason to write when a dead delivery is closed."""
    who = "nobody went on with it" if delivery.patience_seconds else f"process {delivery.pid} on {delivery.host} died"
    return f"{who}; its last sign of life was {delivery.heartbeat:%F %T} UTC"


def _unknown(delivery: str) -> UnknownDelivery:
    return UnknownDelivery(f"there is no delivery {delivery}", hint="`tidegate status --last 20` lists them")


def refuse_ended(delivery: DeliverySummary) -> None:
    """Raise Refused when it is over."""
    if delivery.ended is not None:
        over = f"delivery {delivery.id} is over: {delivery.outcome}: {delivery.reason}"
        raise Refused(over, hint="`tidegate deliver` begins another")


def _refusal(other: DeliverySummary) -> DeliveryRuns:
    # The process that was heard of last may be one whose step is done.
    steps = f"step by step, heard of at {other.heartbeat:%T} UTC"
    carried = steps if other.patience_seconds else f"on {other.host} (process {other.pid})"
    return DeliveryRuns(
        f"delivery {other.id} of {other.name} runs since {other.started:%F %T} UTC {carried}",
        hint="see `tidegate status`, wait for it, or roll it back with `tidegate rollback`",
    )
