"""The queue of delivery requests: one SQLite file that outlives the process."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pipelines.requests import EVER, DeliveryRequest, QueuedRequest, RequestState, lapsed
from pipelines.triggers.webhooks import TOLERANCE, WebhookStatus
from tidegate.core.errors import OutsideError, Refused

_TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    model TEXT NOT NULL, version TEXT NOT NULL, alias TEXT NOT NULL,
    standing INTEGER NOT NULL DEFAULT 1,
    entry TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_standing ON entries (model, version, alias) WHERE standing;
CREATE TABLE IF NOT EXISTS messages (id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS looks (
    model TEXT NOT NULL, alias TEXT NOT NULL, at TEXT NOT NULL, versions TEXT NOT NULL, PRIMARY KEY (model, alias)
);
"""


class RequestQueue:
    """Every call returns after the disk has what it says; may be used from several threads.

    A request stands until the registry shows that the version has lost its alias; while it stands, the same request
    is a duplicate.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, made on first use.

        Raises:
            Refused: another process has it.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
        try:
            # Two that reconcile one inbox would start everything twice; the file's own lock ends with its process.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
        except sqlite3.OperationalError as error:
            self._db.close()
            raise Refused(f"{path}: {error}", hint="another `tidegate serve` uses it") from error

    def hear(self, message: str, request: DeliveryRequest | None, now: datetime) -> WebhookStatus:
        """Keep a message's id, and its request unless it stands already: replayed, noted, queued or duplicate.

        Raises:
            OutsideError: the disk did not take it; nothing of it is kept.
        """
        oldest = now.timestamp() - 2 * TOLERANCE.total_seconds()
        with self._transaction() as db:
            # Older ones are refused as stale, so that nobody need remember them.
            db.execute("DELETE FROM messages WHERE at < ?", (oldest,))
            if not db.execute("INSERT OR IGNORE INTO messages VALUES (?, ?)", (message, now.timestamp())).rowcount:
                return WebhookStatus.REPLAYED
            if request is None:
                return WebhookStatus.NOTED
            return WebhookStatus.QUEUED if _add(db, request, now) else WebhookStatus.DUPLICATE

    def compare(self, model: str, alias: str, marked: str | None, looked: datetime) -> DeliveryRequest | None:
        """Bring the inbox in line with what the registry shows; returns a request that no message had brought.

        `marked` is the number of the version that carries the alias, `looked` when the registry was asked.
        """
        with self._transaction() as db:
            for entry in lapsed(_standing(db, model, alias), marked, looked):
                state = RequestState.WITHDRAWN if entry.state is RequestState.QUEUED else entry.state
                _write(db, entry.model_copy(update={"state": state}), standing=False)
            before = db.execute(
                "SELECT at, versions FROM looks WHERE (model, alias) = (?, ?)", (model, alias)
            ).fetchone()
            seen = (model, alias, looked.isoformat(), json.dumps([marked] if marked else []))
            db.execute("INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)", seen)
            if marked is None:
                return None
            request = DeliveryRequest(model=model, version=marked, alias=alias)
            # It had another alias, or none, when it was looked at last: this one is younger than that.
            known = before is not None and marked not in json.loads(before[1])
            return request if _add(db, request, datetime.fromisoformat(before[0]) if known else EVER) else None

    def standing(self, model: str, alias: str) -> list[QueuedRequest]:
        """The entries that stand, oldest first."""
        with self._transaction() as db:
            return _standing(db, model, alias)

    def update(self, entry: QueuedRequest) -> None:
        """Write what became of a request."""
        with self._transaction() as db:
            _write(db, entry, standing=True)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                with self._db:
                    yield self._db
            except sqlite3.Error as error:
                raise OutsideError(
                    f"the inbox cannot be written: {error}", hint="free space, or make the state folder writable"
                ) from error


def _add(db: sqlite3.Connection, request: DeliveryRequest, since: datetime) -> bool:
    entry = QueuedRequest(number=0, request=request, since=since)
    row = (request.model, request.version, request.alias, entry.model_dump_json())
    return bool(
        db.execute("INSERT OR IGNORE INTO entries (model, version, alias, entry) VALUES (?, ?, ?, ?)", row).rowcount
    )


def _write(db: sqlite3.Connection, entry: QueuedRequest, *, standing: bool) -> None:
    row = (entry.model_dump_json(), standing, entry.number)
    db.execute("UPDATE entries SET entry = ?, standing = ? WHERE number = ?", row)


def _standing(db: sqlite3.Connection, model: str, alias: str) -> list[QueuedRequest]:
    where = "standing AND (model, alias) = (?, ?)"
    rows = db.execute(f"SELECT number, entry FROM entries WHERE {where} ORDER BY number", (model, alias))
    return [_entry(row) for row in rows]


def _entry(row: tuple[int, str]) -> QueuedRequest:
    number, text = row
    return QueuedRequest.model_validate_json(text).model_copy(update={"number": number})
