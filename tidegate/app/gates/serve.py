"""The judge as a server: sequential tests that keep their state, read from a Prometheus, asked over HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gates.sessions.model import SessionAnswer, SessionLimits
from gates.sessions.registry import Sessions, SessionTerms
from pipelines.judging.app import JudgeApp
from tidegate.app.wiring.gates.gate_sets import read_gates
from tidegate.app.wiring.gates.model import GateSet
from tidegate.app.wiring.gates.prometheus import evidence_in
from tidegate.app.wiring.web import GuardedListener, ListenOptions, guarded_listener
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.files import lock_open_file
from tidegate.core.process import cancelled_by_signals, note
from tidegate.core.threads import call_in_thread


@dataclass(frozen=True)
class GateServeOptions:
    """As the options say it."""

    gates: Path
    prometheus: str
    access: Path | None
    """How it is told who asks."""
    state: Path
    """A folder with a file for each session."""
    listen: ListenOptions
    limits: SessionLimits
    as_data: bool
    """Whether each change of an outcome is a line of JSON on stdout."""


SWEEP_SECONDS = 60.0
"""Between two looks for sessions that nobody asks any more."""


def serve_gates(options: GateServeOptions) -> None:
    """Answer until Ctrl-C or SIGTERM.

    Raises:
        SpecError: the gates are wrong.
        UsageError: an option is wrong, or another server has the folder.
        OutsideError: nobody can listen there.
    """
    judged = read_gates(options.gates, of_prometheus=True)
    terms = judged.terms("proxy")
    source = evidence_in(options.prometheus, options.access, judged, terms)
    with _own_folder(options.state) as folder, guarded_listener(options.listen) as heard:
        sessions = Sessions(
            SessionTerms(terms, judged.look, judged.service),
            source,
            folder,
            SystemClock(),
            limits=options.limits,
            changed=_tell_data if options.as_data else _tell,
        )
        with suppress(asyncio.CancelledError):
            asyncio.run(_answer(options, judged, sessions, heard))


async def _answer(options: GateServeOptions, judged: GateSet, sessions: Sessions, heard: GuardedListener) -> None:
    listen = options.listen
    app = JudgeApp(sessions, retry_seconds=judged.look.total_seconds(), needs_region=judged.by_region, refused=note)
    door = app.behind_door(hosts=listen.names(None), login=listen.login)
    async with heard.answering(door):
        gates = ", ".join(judged.terms("proxy").gates)
        note(f"listening on {heard.address} for {judged.name}: {gates}")
        for gate in judged.not_asked:
            note(f"gate {gate} is not asked here: it needs more than a Prometheus")
        if standing := await call_in_thread(sessions.count):
            note(f"{standing:,} {'session' if standing == 1 else 'sessions'} of before in {options.state}")
        async with cancelled_by_signals("no new requests; sessions are kept"):
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                if gone := await call_in_thread(sessions.sweep):
                    note(f"{gone:,} {'session' if gone == 1 else 'sessions'} forgotten: nobody asked")


@contextmanager
def _own_folder(folder: Path) -> Iterator[Path]:
    """The folder, ours alone while the block lasts."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise UsageError(f"--state {folder}: {(error.strerror or 'cannot be used').lower()}") from error
    with lock:
        if not lock_open_file(lock):
            raise UsageError(f"--state {folder}: another `gate serve` uses it", hint="name another folder")
        yield folder


def limits_of(sessions: int, within: timedelta, expire: timedelta) -> SessionLimits:
    """The limits as they were typed.

    Raises:
        UsageError: nothing could be judged in that time.
    """
    for option, value in (("--within", within), ("--expire", expire)):
        if not timedelta(minutes=1) <= value <= timedelta(days=30):
            raise UsageError(f"{option} {value}: expected 1m to 30d")
    return SessionLimits(sessions=sessions, within=within, expire=expire)


def _tell(answer: SessionAnswer) -> None:
    note(f"{answer.key}: {answer.outcome}: {answer.reason}")


def _tell_data(answer: SessionAnswer) -> None:
    sys.stdout.write(answer.model_dump_json() + "\n")
    sys.stdout.flush()
