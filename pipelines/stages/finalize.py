"""finalize: the registry says what the regions already do."""

from __future__ import annotations

from pipelines.context import Context
from pipelines.model import Step


async def finalize(context: Context, step: Step) -> None:
    """Champion becomes previous, challenger becomes champion; the version remembers its delivery."""
    version = context.plan.version
    marks = {"tidegate.outcome": "delivered", "tidegate.reason": "every gate passed"}
    # Both by the ledger's thread: what undoes them, should the delivery end here, comes after them.
    await context.journal.insist(lambda: context.registry.mark(version, marks))
    # Last of all: until every wave has baked, the champion is where everything goes back to.
    await context.journal.insist(lambda: context.registry.promote(version))
    context.journal.tell(step.id, "evidence", f"champion is version {version.version}")
