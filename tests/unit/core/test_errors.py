"""Every error a person reads is one line, says what to do, and has its exit code."""

from __future__ import annotations

import pytest

from tidegate.core.errors import ExitCode, Interrupted, OutsideError, Refused, TidegateError, UsageError


def test_the_hint_follows_the_message_on_the_same_line() -> None:
    assert str(OutsideError("Prometheus is not there", hint="install it")) == "Prometheus is not there; install it"
    assert str(OutsideError("Prometheus is not there")) == "Prometheus is not there"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (UsageError, ExitCode.USAGE),
        (Refused, ExitCode.USAGE),
        (Interrupted, ExitCode.INTERRUPTED),
        (OutsideError, ExitCode.OUTSIDE),
    ],
)
def test_each_kind_has_the_exit_code_that_commands_promise(kind: type[TidegateError], code: ExitCode) -> None:
    assert kind("x").exit_code is code


def test_the_exit_codes_are_the_documented_ones() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4, 5, 70, 130, 141]
