"""The deliveries of an MLflow store: opens one at a time for each model, and lists them all."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psutil

from registry.adapters.mlflow_ledger import MlflowLedger
from registry.adapters.mlflow_store import NOT_ENDED, NOT_FOUND, experiment_id, open_client, store_errors
from registry.conventions import (
    CHAMPION,
    HEARTBEAT,
    HOST,
    KEY,
    LAST_STEP,
    MODEL,
    OUTCOME,
    OWNER,
    PATIENCE,
    PID,
    REASON,
    STATE,
    VERSION,
    experiment_name,
)
from registry.errors import DeliveryRuns, StoreUnreachable, UnknownDelivery
from registry.liveness import LIVE_SECONDS, contest, is_alive, why_dead
from registry.model import DeliverySummary, Event, ModelVersion
from registry.record import read_events
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import Refused

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PAGE_RUNS = 1000
"""Asked for at once at most; MLflow's own default."""
OPENING, RUNNING = "opening", "running"
"""Of `STATE`: written before the contest with others, and after it was won."""
PATIENCE_SECONDS = 30.0
"""How long the older of two that open at once waits for the younger to withdraw or win.

Longer than a machine under load takes from its write to its look, or both would go; shorter than LIVE_SECONDS, since
nothing is heard of the one that waits.
"""


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
    ) -> None:
        """`host` and `pid` say who opens; they are this process unless given."""
        self._uri = tracking_uri
        self._clock = clock or SystemClock()
        self._host = host or socket.gethostname()
        self._pid = pid or os.getpid()
        self._sleep = sleep

    @cached_property
    def _client(self) -> MlflowClient:
        return open_client(self._uri)

    def open_delivery(
        self,
        version: ModelVersion,
        champion: ModelVersion | None,
        *,
        spec_digest: str,
        patience: timedelta = timedelta(0),
        key: str | None = None,
    ) -> MlflowLedger:
        """Begin the only delivery of this model, after closing those that died as `interrupted`.

        Args:
            version: what is delivered.
            champion: the version that serves now.
            spec_digest: of the file that describes the delivery.
            patience: how long nothing may be heard of it, when many processes will carry it one after the other.
            key: of whoever opens; a delivery that it has opened before and that is not over is joined instead.

        Raises:
            DeliveryRuns: another one lives; names its id, host, process and start.
        """
        for other, _ in self._live(version.name):
            if key is not None and other.key == key:
                return self.join(other.id)
            raise _refusal(other)
        more = {PATIENCE: f"{patience.total_seconds():g}"} if patience else {}
        run = self._create(version, champion, spec_digest, more | ({KEY: key} if key else {}))
        try:
            self._win(run.info.run_id, version.name)
        # Whatever it was: a run that stays open would look like a delivery.
        except BaseException:
            self._withdraw(run.info.run_id)
            raise
        return MlflowLedger(self._client, run, self._clock)

    def join(self, delivery: str, *, carries: bool = True) -> MlflowLedger:
        """The ledger of a delivery that another process opened; events of both stand in it.

        Args:
            delivery: its id.
            carries: whether what is written is a sign that the delivery lives; not what somebody says from outside.

        Raises:
            UnknownDelivery: no ledger has that id.
        """
        writer = uuid4().hex[:8]
        return MlflowLedger(self._client, self._run(delivery), self._clock, writer=writer, carries=carries)

    def take_over(self, delivery: str, *, patience: timedelta = timedelta(0), key: str | None = None) -> MlflowLedger:
        """Carry on a delivery; processes that carried it before are refused whatever they write from now on.

        Raises:
            Refused: it is over, or a process still shows that it carries it.
            UnknownDelivery: no ledger has that id.
        """
        known = self.summary(delivery)
        if known.ended is not None:
            raise Refused(f"delivery {delivery} is over: {known.outcome}: {known.reason}")
        # One that many processes carry may have none just now; while one works, it is heard of every few seconds.
        if self.is_alive(known.model_copy(update={"patience_seconds": min(known.patience_seconds, LIVE_SECONDS)})):
            raise _refusal(known)
        marks = {
            OWNER: uuid4().hex,
            HOST: self._host,
            PID: str(self._pid),
            HEARTBEAT: self._clock.now().isoformat(),
            PATIENCE: f"{patience.total_seconds():g}",
            KEY: key or "",
        }
        with store_errors(self._uri):
            for name, value in marks.items():
                self._client.set_tag(delivery, name, value)
        return self.join(delivery)

    def summary(self, delivery: str) -> DeliverySummary:
        """One delivery as lists show it.

        Raises:
            UnknownDelivery: no ledger has that id.
        """
        return _summarize(self._run(delivery))

    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]:
        """Every delivery of the model, or the `last` so many, newest first; an empty list when there was none."""
        return [_summarize(run) for run in self._runs(name, last)]

    def events(self, delivery: str) -> list[Event]:
        """What a delivery's ledger holds, oldest first."""
        with store_errors(self._uri):
            return read_events(self._client.get_run(delivery).data.tags)

    def fetch(self, delivery: str, folder: str, into: Path) -> list[Path]:
        """Copy the files below one folder of a delivery's artifacts; none when there is no such folder or delivery."""
        from mlflow.exceptions import MlflowException

        with store_errors(self._uri):
            try:
                found = sorted(self._files(delivery, folder))
            except MlflowException as error:
                if error.error_code != NOT_FOUND:
                    raise
                return []
            return [self._brought(delivery, path, into) for path in found]

    def is_alive(self, delivery: DeliverySummary) -> bool:
        """Whether it has not ended and its process still shows signs of life."""
        return delivery.ended is None and is_alive(delivery, self._clock.now(), self._host, _may_act)

    def _files(self, delivery: str, folder: str) -> Iterator[str]:
        for file in self._client.list_artifacts(delivery, folder):
            if file.is_dir:
                yield from self._files(delivery, file.path)
            else:
                yield file.path

    def _brought(self, delivery: str, path: str, into: Path) -> Path:
        """One artifact, at its own place below `into`: whether MLflow keeps its folders depends on the store."""
        found, wanted = Path(self._client.download_artifacts(delivery, path, str(into))), into / path
        if found != wanted:
            wanted.parent.mkdir(parents=True, exist_ok=True)
            found.replace(wanted)
        return wanted

    def _run(self, delivery: str) -> Run:
        from mlflow.exceptions import MlflowException

        with store_errors(self._uri):
            try:
                run = self._client.get_run(delivery)
            except MlflowException as error:
                if error.error_code not in (NOT_FOUND, "INVALID_PARAMETER_VALUE"):
                    raise
                run = None
        if run is None or MODEL not in run.data.tags:
            raise UnknownDelivery(f"there is no delivery {delivery}", hint="`tidegate status` names the last one")
        return run

    def _create(
        self, version: ModelVersion, champion: ModelVersion | None, spec_digest: str, more: Mapping[str, str]
    ) -> Run:
        from mlflow.entities import Param

        now = self._clock.now()
        tags = {
            MODEL: version.name,
            VERSION: version.version,
            HOST: self._host,
            PID: str(self._pid),
            HEARTBEAT: now.isoformat(),
            STATE: OPENING,
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
        with store_errors(self._uri):
            experiment = experiment_id(self._client, version.name)
            run = self._client.create_run(
                experiment,
                start_time=round(now.timestamp() * 1000),
                tags=tags,
                run_name=f"{version.name} {version.version} {now:%Y-%m-%d %H:%M:%S}",
            )
            self._client.log_batch(run.info.run_id, params=[Param(*item) for item in params.items()])
            return run

    def _win(self, run_id: str, name: str) -> None:
        """Return when no other delivery of the model can go on; see `contest`.

        MLflow has no compare-and-set, so nobody can take a lock: everyone writes first and looks second.
        """
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        while True:
            with store_errors(self._uri):
                mine = _summarize(self._client.get_run(run_id))
            others = [(other, won) for other, won in self._live(name) if other.id != run_id]
            if not others:
                break
            winner = contest(mine, others)
            if winner is not None or self._clock.monotonic() > deadline:
                raise _refusal(winner or others[0][0])
            self._sleep(0.1)
        with store_errors(self._uri):
            self._client.set_tag(run_id, STATE, RUNNING)

    def _withdraw(self, run_id: str) -> None:
        """A delivery that never began leaves nothing in the lists."""
        try:
            with store_errors(self._uri):
                self._client.delete_run(run_id)
        except StoreUnreachable:
            return  # its heartbeat never moves again, so others take it for dead

    def _live(self, name: str) -> Iterator[tuple[DeliverySummary, bool]]:
        """The live deliveries with whether each has won; those that died are closed on the way."""
        for run in self._runs(name, only=f"attributes.status = '{NOT_ENDED}'"):
            delivery = _summarize(run)
            if self.is_alive(delivery):
                yield delivery, run.data.tags[STATE] != OPENING
            else:
                MlflowLedger(self._client, run, self._clock).close(
                    delivery.outcome or "interrupted", delivery.reason or why_dead(delivery)
                )

    def _runs(self, name: str, last: int | None = None, *, only: str = "") -> list[Run]:
        with store_errors(self._uri):
            experiment = self._client.get_experiment_by_name(experiment_name(name))
            if experiment is None:
                return []
            wanted = f"tags.`{MODEL}` = '{name}'" + (f" and {only}" if only else "")
            runs: list[Run] = []
            token: str | None = None
            while token != "" and (last is None or len(runs) < last):
                page = self._client.search_runs(
                    [experiment.experiment_id],
                    wanted,
                    max_results=min(last or PAGE_RUNS, PAGE_RUNS),
                    page_token=token,
                )
                runs += page
                token = page.token or ""
            return runs[:last]


def _summarize(run: Run) -> DeliverySummary:
    tags, info = run.data.tags, run.info
    return DeliverySummary(
        id=info.run_id,
        name=tags[MODEL],
        version=tags[VERSION],
        champion=tags.get(CHAMPION),
        started=_moment(info.start_time),
        ended=_moment(info.end_time) if info.status != NOT_ENDED and info.end_time else None,
        outcome=tags.get(OUTCOME),
        reason=tags.get(REASON),
        last_step=tags.get(LAST_STEP),
        host=tags[HOST],
        pid=int(tags[PID]),
        heartbeat=datetime.fromisoformat(tags[HEARTBEAT]),
        patience_seconds=float(tags.get(PATIENCE, 0)),
        key=tags.get(KEY) or None,
    )


def _may_act(pid: int) -> bool:
    """Whether there is such a process; one that is dead and waits for its parent to notice may not act."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _refusal(other: DeliverySummary) -> DeliveryRuns:
    return DeliveryRuns(
        f"delivery {other.id} of {other.name} runs since {other.started:%F %T} UTC"
        f" on {other.host} (process {other.pid})",
        hint="see `tidegate status`, wait for it, or take it back with `tidegate rollback`",
    )
