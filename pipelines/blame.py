"""Whose fault it is that the canary gave no answer: the version's, or what lies between it and us."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gates.errors import BadAnswer
from gates.model import Outcome, Verdict
from pipelines.context import Context
from pipelines.errors import Stopped
from pipelines.model import Ending, Step
from pipelines.watch import refuse_dead_canary
from tidegate.core.errors import OutsideError


@asynccontextmanager
async def canary_is_asked(context: Context, step: Step, gate: str) -> AsyncIterator[None]:
    """Questions to the canary that any version should answer.

    Raises:
        Stopped: it was reached and did not answer as engines do, or it died; `gate` fails.
        OutsideError: it was not reached and its region says that it is ready.
    """
    try:
        yield
    except BadAnswer as error:
        raise at_fault(context, step, gate, error.message) from error
    except OutsideError:
        # First, because a canary that died is not there either.
        refuse_dead_canary(context, await context.fleet(step).observe())
        raise


def at_fault(context: Context, step: Step, gate: str, reason: str) -> Stopped:
    """The end of a delivery whose version did not answer; the ledger gets it as a gate's verdict."""
    context.journal.verdict(step, Verdict(gate=gate, outcome=Outcome.FAIL, reason=reason))
    return Stopped(Ending.ROLLED_BACK, f"gate {gate}: {reason}")
