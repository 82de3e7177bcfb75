"""Calls in threads of their own."""

from __future__ import annotations

from _thread import interrupt_main
from sys import _current_frames
from threading import Event, main_thread
from time import sleep
from traceback import extract_stack

import pytest

from tidegate.core.threads import call_within


def waits() -> bool:
    """Whether the main thread is in a wait, and not in that for the start of a thread."""
    ident = main_thread().ident
    assert ident is not None
    names = [frame.name for frame in extract_stack(_current_frames()[ident])]
    return names[-1] == "wait" and "start" not in names


@pytest.mark.timeout(600)
def test_ctrl_c_that_comes_as_the_wait_begins_is_noticed() -> None:
    """Such a signal wakes nobody: its handler runs once the main thread does anything at all."""
    never = Event()

    def call() -> None:
        while not waits():
            sleep(0.001)
        interrupt_main()
        never.wait()

    with pytest.raises(KeyboardInterrupt):
        call_within(3600, call)
    never.set()


def test_a_call_that_hangs_is_left_behind_and_one_that_ends_gives_what_it_has() -> None:
    never = Event()
    with pytest.raises(TimeoutError):
        call_within(0.01, never.wait)
    never.set()
    assert call_within(None, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        call_within(5, lambda: 1 / 0)
