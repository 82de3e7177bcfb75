"""What the API server says when it will not: the `Status` object (API conventions, "Response Status Kind")."""

from __future__ import annotations

from rollouts.kube.resources import Resource
from tidegate.core.model import Json


class Refusal(Exception):
    """A request that the server answered with a `Status` of failure; the server's state is as it was.

    Code, reason and wording follow `k8s.io/apimachinery/pkg/api/errors`.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        retry_after: int | None = None,
        details: Json | None = None,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.details = details or {}

    def status(self) -> Json:
        """The body of the answer."""
        details = dict(self.details)
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        return status | ({"details": details} if details else {})


def not_found(kind: Resource, name: str) -> Refusal:
    """`NewNotFound`."""
    return Refusal(404, "NotFound", f'{_qualified(kind)} "{name}" not found', details=_details(kind, name))


def no_such_path() -> Refusal:
    """What a path that nothing serves is answered: also the status subresource of a kind that has none."""
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Resource, name: str) -> Refusal:
    """`NewAlreadyExists`."""
    return Refusal(409, "AlreadyExists", f'{_qualified(kind)} "{name}" already exists', details=_details(kind, name))


def conflict(kind: Resource, name: str) -> Refusal:
    """`NewConflict` with the optimistic lock's words (API conventions, "Concurrency Control and Consistency")."""
    lock = "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {_qualified(kind)} "{name}": {lock}'
    return Refusal(409, "Conflict", message, details=_details(kind, name))


def invalid(name: str, said: str) -> Refusal:
    """`NewInvalid`."""
    return Refusal(422, "Invalid", f'"{name}" is invalid: {said}')


def bad_request(message: str) -> Refusal:
    """`NewBadRequest`."""
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    """`NewUnauthorized`: no credentials, or such that are valid no more."""
    return Refusal(401, "Unauthorized", "Unauthorized")


def _qualified(kind: Resource) -> str:
    """`rollouts.argoproj.io`, or `services` in the core group."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _details(kind: Resource, name: str) -> Json:
    return {"name": name, "kind": kind.plural} | ({"group": kind.group} if kind.group else {})
