"""Who serves after every operation, decided without touching anything."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rollouts.arms import Arms, state
from rollouts.errors import NotPossible
from rollouts.local.routes import routes
from rollouts.model import RegionPhase, Role
from tidegate.testing import FakeEngine, an_engine


def running(version: str, port: int = 8001, *, alive: bool = True, last_words: str = "") -> FakeEngine:
    engine = FakeEngine(an_engine(version), port)
    engine.alive, engine.last_words = alive, last_words
    return engine


STABLE, CANARY, PREVIOUS = running("6", 8001), running("7", 8002), running("5", 8003)
STEADY = Arms(stable=STABLE, previous=PREVIOUS)
TRIAL = Arms(stable=STABLE, canary=CANARY, weight=25, mirror=100)


def refusal(operation: Callable[[], object]) -> NotPossible:
    with pytest.raises(NotPossible) as caught:
        operation()
    return caught.value


def test_arms_are_told_by_role_and_found_by_version() -> None:
    arms = Arms(stable=STABLE, canary=CANARY, previous=PREVIOUS)
    assert [(role, each.engine.version) for role, each in arms] == [
        (Role.STABLE, "6"), (Role.CANARY, "7"), (Role.PREVIOUS, "5"),
    ]  # fmt: skip
    assert arms.running("5") is PREVIOUS
    assert arms.running("9") is None
    assert list(Arms()) == []


def test_a_new_trial_starts_without_users_whatever_the_last_one_had() -> None:
    arms = TRIAL.with_trial(running("8"))
    assert (arms.weight, arms.mirror) == (0, 0)
    assert arms.stable is STABLE


def test_there_is_no_going_back_to_what_is_not_warm() -> None:
    error = refusal(lambda: STEADY.rolled_back("1"))
    assert error.message == "version 1 is not warm here, so there is no going back to it"
    assert error.hint == "warm: 6 and 5"
    assert refusal(lambda: Arms().rolled_back("1")).hint == "warm: -"


def test_a_canary_is_no_way_back() -> None:
    assert refusal(lambda: TRIAL.rolled_back("7")).hint == "warm: 6"


def test_the_proxy_is_told_every_engine_by_role_version_and_port() -> None:
    told = routes(TRIAL)
    assert told.stable
    assert told.canary
    assert (told.stable.version, told.stable.port) == ("6", 8001)
    assert (told.canary.role, told.canary.version, told.canary.port) == (Role.CANARY, "7", 8002)
    assert (told.weight, told.mirror, told.previous) == (25, 100, None)


@pytest.mark.parametrize(
    ("arms", "phase"),
    [
        (Arms(), RegionPhase.EMPTY),
        (STEADY, RegionPhase.STEADY),
        (TRIAL, RegionPhase.TRIAL),
        (Arms(stable=running("6", alive=False)), RegionPhase.DEGRADED),
        (Arms(stable=STABLE, previous=running("5", alive=False)), RegionPhase.DEGRADED),
        (Arms(stable=STABLE, canary=running("7", alive=False)), RegionPhase.DEGRADED),
    ],
)
def test_the_phase_is_what_an_outsider_sees(arms: Arms, phase: RegionPhase) -> None:
    assert state("eu-west-1", arms, entry="http://eu", proxy_alive=True).phase is phase


def test_everything_that_is_down_is_named_the_proxy_first() -> None:
    arms = Arms(stable=STABLE, canary=running("7", alive=False), previous=running("5", alive=False))
    seen = state("eu-west-1", arms, entry="http://eu", proxy_alive=False)
    assert seen.phase is RegionPhase.DEGRADED
    assert seen.problem == "the proxy is down; canary (version 7) is down; previous (version 5) is down"


@pytest.mark.parametrize(("last_words", "problem"), [("Killed", "Killed"), ("", "it died without a word")])
def test_a_dead_arm_says_why(last_words: str, problem: str) -> None:
    arms = Arms(stable=STABLE, canary=running("7", alive=False, last_words=last_words))
    seen = state("eu-west-1", arms, entry="http://eu", proxy_alive=True)
    assert seen.canary
    assert (seen.canary.ready, seen.canary.problem) == (False, problem)
