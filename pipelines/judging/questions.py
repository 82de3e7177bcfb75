"""Who asks what: the bodies of requests, and what each hook of Flagger takes for a yes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gates.model import GateOutcome
from gates.trials import Question
from tidegate.core.errors import UsageError

Body = TypeVar("Body", bound=BaseModel)


class FlaggerPayload(BaseModel):
    """What Flagger posts to every webhook (`CanaryWebhookPayload`); it says more, and later versions may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    metadata: Mapping[str, str] = {}
    """As the webhook of the Canary has it."""

    @property
    def question(self) -> Question:
        """Metadata may say everything but who it is.

        Raises:
            ValidationError: something is missing, or unknown.
        """
        return Question(**{**self.metadata, "service": self.name})


class FlaggerHook(StrEnum):
    """Types of webhooks of a Canary that a verdict can answer."""

    PRE_ROLLOUT = "pre-rollout"
    ROLLOUT = "rollout"
    CONFIRM_TRAFFIC_INCREASE = "confirm-traffic-increase"
    CONFIRM_PROMOTION = "confirm-promotion"
    ROLLBACK = "rollback"
    POST_ROLLOUT = "post-rollout"


Yes = Callable[[GateOutcome], bool]
FLAGGER_YES: Mapping[FlaggerHook, Yes] = {
    FlaggerHook.PRE_ROLLOUT: lambda outcome: outcome is not GateOutcome.ERROR,
    # Each no is a failed check, and so many of them take the canary back.
    FlaggerHook.ROLLOUT: lambda outcome: outcome in (GateOutcome.PASS, GateOutcome.RUNNING),
    # A no keeps it waiting.
    FlaggerHook.CONFIRM_TRAFFIC_INCREASE: lambda outcome: outcome is GateOutcome.PASS,
    FlaggerHook.CONFIRM_PROMOTION: lambda outcome: outcome is GateOutcome.PASS,
    # A yes rolls it back at once.
    FlaggerHook.ROLLBACK: lambda outcome: outcome is GateOutcome.FAIL,
    # Nothing is kept that would have to be closed.
    FlaggerHook.POST_ROLLOUT: lambda _: True,
}
"""When a hook is answered 200."""


def read_body(kind: type[Body], text: bytes) -> Body:
    """The body of a request.

    Raises:
        UsageError: it is none; says the first field that is wrong, without quoting the body.
    """
    try:
        return kind.model_validate_json(text or b"{}")
    except ValidationError as error:
        raise wrong(error, kind) from error


def wrong(error: ValidationError, kind: type[BaseModel]) -> UsageError:
    """The first problem as one line."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "body"
    return UsageError(f"{where}: {first['msg'].lower()}", hint=f"fields are {', '.join(kind.model_fields)}")
