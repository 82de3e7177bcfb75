"""What evidence can fail at.

BadAnswer (OutsideError)     an engine was reached, and answered with an error, with nonsense, or not to the end
NotAnswered (OutsideError)   a command that a gate asks gave no answer that can be read
"""

from __future__ import annotations

from tidegate.core.errors import OutsideError


class BadAnswer(OutsideError):
    """An engine that was reached did not answer as engines do. Asked of a canary, it is the version's fault."""


class NotAnswered(OutsideError):
    """A command that a gate asks gave no answer, or none that can be read; it says nothing of the version."""

    def __init__(self, message: str, *, again: bool, hint: str, output: str = "") -> None:
        """`again` is whether asking again may help; `output` is what is kept of it, without any secret."""
        super().__init__(message, hint=hint)
        self.again, self.output = again, output
