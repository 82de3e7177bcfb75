"""A run of MLflow, read as the delivery that it records."""

from __future__ import annotations

from datetime import UTC, datetime

from registry.adapters.mlflow_ledger import NOT_ENDED
from registry.conventions import (
    CHAMPION,
    HEARTBEAT,
    HOST,
    IN_PRODUCTION,
    KEY,
    LAST_STEP,
    MACHINE,
    MODEL,
    ON_TRIAL,
    OUTCOME,
    PATIENCE,
    PID,
    REASON,
    VERSION,
)
from registry.errors import LedgerForged
from registry.model import DeliverySummary, StoredRun
from tidegate.core.text import foreign


def summary_of(run: StoredRun) -> DeliverySummary:
    """What a delivery's run says of it.

    Raises:
        LedgerForged: its tags are not those of a delivery. Anybody who may write to MLflow may write any.
    """
    hint = "no command of tidegate wrote it so; see the run in MLflow, and who may write there"
    with foreign(lambda why: LedgerForged(f"run {run.id} cannot be read as a delivery: {why}", hint=hint)):
        return _summary(run)


LARGEST_PID = 2**31
LONGEST_PATIENCE_SECONDS = 366 * 86400.0


def _summary(run: StoredRun) -> DeliverySummary:
    tags = run.tags
    pid, patience = int(tags[PID]), float(tags.get(PATIENCE, 0))
    heartbeat = datetime.fromisoformat(tags[HEARTBEAT])
    if heartbeat.tzinfo is None:
        raise ValueError(f"{HEARTBEAT}: found a time without a zone")
    if not (0 < pid < LARGEST_PID and 0 <= patience <= LONGEST_PATIENCE_SECONDS):
        raise ValueError(f"found {PID} {pid} and {PATIENCE} {patience:g}")
    return DeliverySummary(
        id=run.id,
        name=tags[MODEL],
        version=tags[VERSION],
        champion=tags.get(CHAMPION),
        on_trial=tags.get(ON_TRIAL, ""),
        in_production=tags.get(IN_PRODUCTION, ""),
        started=_moment(run.started),
        ended=_moment(run.ended) if run.status != NOT_ENDED and run.ended else None,
        outcome=tags.get(OUTCOME),
        reason=tags.get(REASON),
        last_step=tags.get(LAST_STEP),
        host=tags[HOST],
        pid=pid,
        machine=tags.get(MACHINE, ""),
        heartbeat=heartbeat,
        patience_seconds=patience,
        key=tags.get(KEY) or None,
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
