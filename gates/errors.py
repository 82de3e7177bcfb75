"""What evidence can fail at.

BadAnswer (OutsideError)   an engine was reached, and answered with an error, with nonsense, or not to the end
"""

from __future__ import annotations

from tidegate.core.errors import OutsideError


class BadAnswer(OutsideError):
    """An engine that was reached did not answer as engines do. Asked of a canary, it is the version's fault."""
