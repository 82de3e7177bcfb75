"""Who asks what: the bodies of requests, and what each hook of Flagger takes for a yes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


FLAGGER_YES: Mapping[str, Callable[[GateOutcome], bool]] = {
    "pre-rollout": lambda outcome: outcome is not GateOutcome.ERROR,
    # Each no is a failed check, and so many of them take the canary back.
    "rollout": lambda outcome: outcome in (GateOutcome.PASS, GateOutcome.RUNNING),
    # A no keeps it waiting.
    "confirm-traffic-increase": lambda outcome: outcome is GateOutcome.PASS,
    "confirm-promotion": lambda outcome: outcome is GateOutcome.PASS,
    # A yes rolls it back at once.
    "rollback": lambda outcome: outcome is GateOutcome.FAIL,
    # Nothing is kept that would have to be closed.
    "post-rollout": lambda _: True,
}
"""By type of webhook, when it is answered 200."""


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
