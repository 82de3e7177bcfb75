"""finalize: the registry says what the regions already do."""

from __future__ import annotations

from pipelines.context import Context
from pipelines.model import Step


async def finalize(context: Context, step: Step) -> None:
    """Champion becomes previous, challenger becomes champion; the version remembers its delivery."""
    version = context.plan.version
    context.registry.mark(version, {"tidegate.outcome": "delivered", "tidegate.reason": "every gate passed"})
    # Last of all: until every wave has baked, the champion is where everything goes back to.
    context.registry.promote(version)
    context.journal.say(step.id, "evidence", f"champion is version {version.version}")
