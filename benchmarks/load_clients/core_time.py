"""Core seconds of a process and all its children, as they grow."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from contextlib import suppress

import psutil

EVERY_SECONDS = 0.1


class CoreTime:
    """Looks ten times a second while the context lasts."""

    def __init__(self, pid: int) -> None:
        """Of the process with all that it starts."""
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._times: list[float] = []
        self._spent: list[float] = []

    def __enter__(self) -> CoreTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> float:
        """Core seconds from one moment of the monotonic clock to the other."""
        return self._at(end) - self._at(begin)

    def _at(self, moment: float) -> float:
        """Linear between two looks."""
        index = min(max(bisect_left(self._times, moment), 1), len(self._times) - 1)
        early, late = self._times[index - 1], self._times[index]
        part = min(max((moment - early) / (late - early), 0.0), 1.0)
        return self._spent[index - 1] + part * (self._spent[index] - self._spent[index - 1])

    def _look(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            spent = 0.0
            with suppress(psutil.NoSuchProcess):
                for process in [self._process, *self._process.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        # With those of children that have ended.
                        spent += sum(process.cpu_times()[:4])
            if not self._spent or spent >= self._spent[-1]:
                self._times.append(time.perf_counter())
                self._spent.append(spent)
