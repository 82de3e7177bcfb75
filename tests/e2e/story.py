"""What one story has brought about so far: its versions, its delivery, its users."""

from __future__ import annotations

import signal

from e2e.machine import Command, Finished, Machine
from e2e.spec import MODEL, REGION

from gates.evidence.request_record import RecordReader, RequestRecord
from rollouts.model import RegionState


class Story:
    """What one story has brought about so far."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.champion = ""
        """The version that served when the story began."""
        self.challenger = ""
        self.delivery: Command | None = None
        self.users: Command | None = None
        self._records = machine.state / "traffic" / f"{MODEL}.jsonl"
        self._begin = self._records.stat().st_size if self._records.exists() else 0

    def requests(self) -> list[RequestRecord]:
        """Every user request of this story that is over, by the users' own records."""
        return RecordReader(self._records, offset=self._begin).read_new() if self._records.exists() else []

    def region(self) -> RegionState:
        state = self.machine.region(REGION)
        assert state is not None, "no fleet runs here"
        return state

    def ended(self) -> Finished:
        """The delivery, once it is over."""
        assert self.delivery is not None, "nothing is delivered in this story"
        return self.delivery.finish()

    def measured(self, what: str) -> None:
        """A number for people; `pytest -rP` shows it."""
        print(f"measured: {what}")

    def end(self) -> None:
        """Whatever still runs of the story ends in good order, the fleet excepted."""
        for command in (self.delivery, self.users):
            if command is not None and command.runs:
                command.send(signal.SIGINT)
                command.finish()
