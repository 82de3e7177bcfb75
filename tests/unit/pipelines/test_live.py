"""Which source tells what about a region's two arms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.evidence import FakeEvidence
from fakes.world import CHALLENGER, CHAMPION, World

from gates.model import Outcome, Verdict
from pipelines.live import errors_verdict, latency_verdict
from pipelines.model import StageName, Step

STEP = Step(stage=StageName.CANARY, wave=1, region="eu-west-1", weight=10)


class Eyes:
    """A delivery with what its proxies count and, if so, what its users write down."""

    def __init__(self, folder: Path, *, users: bool) -> None:
        self.world = World(folder)
        self.proxy = self.world.evidence
        self.users = FakeEvidence()
        self.users.serves("stable", CHAMPION, requests=200)
        self.users.serves("canary", CHALLENGER, requests=200)
        self.context = replace(self.world.context(), users=self.users if users else None)

    def errors(self, *, users: bool = True) -> Verdict:
        arms = self.context.arms(STEP)
        return errors_verdict(self.context, *arms, self.world.now(), final=False, users=users)

    def latency(self) -> Verdict:
        return latency_verdict(self.context, *self.context.arms(STEP), self.world.now(), final=False)


@pytest.fixture
def alone(tmp_path: Path) -> Eyes:
    return Eyes(tmp_path, users=False)


@pytest.fixture
def watched(tmp_path: Path) -> Eyes:
    return Eyes(tmp_path, users=True)


def test_without_users_the_proxies_and_engines_tell(alone: Eyes) -> None:
    assert (alone.errors().outcome, alone.latency().outcome) == (Outcome.PASS, Outcome.PASS)
    alone.proxy.serves("canary", CHALLENGER, requests=200, failed=60, ttft=0.5)
    assert (alone.errors().outcome, alone.latency().outcome) == (Outcome.FAIL, Outcome.FAIL)


def test_users_own_times_are_what_counts_when_somebody_writes_them_down(watched: Eyes) -> None:
    watched.proxy.serves("canary", CHALLENGER, requests=200, ttft=0.5)
    assert watched.latency().outcome is Outcome.PASS
    watched.users.serves("canary", CHALLENGER, requests=200, ttft=0.5)
    assert watched.latency().outcome is Outcome.FAIL


def test_a_stream_that_broke_at_the_client_is_an_error_that_no_proxy_saw(watched: Eyes) -> None:
    watched.users.serves("canary", CHALLENGER, requests=200, failed=60)
    assert watched.errors().outcome is Outcome.FAIL


def test_a_retry_that_saved_the_user_is_an_error_that_no_client_saw(watched: Eyes) -> None:
    watched.proxy.serves("canary", CHALLENGER, requests=200, failed=60)
    assert watched.errors().outcome is Outcome.FAIL


def test_a_source_that_is_gone_is_not_outvoted_by_one_that_sees_no_errors(watched: Eyes) -> None:
    watched.proxy.gone = True
    verdict = watched.errors()
    assert (verdict.outcome, verdict.reason) == (Outcome.ERROR, "Prometheus is not there")


def test_a_failure_that_one_source_proves_counts_though_the_other_is_gone(watched: Eyes) -> None:
    watched.proxy.gone = True
    watched.users.serves("canary", CHALLENGER, requests=200, failed=60)
    assert watched.errors().outcome is Outcome.FAIL


def test_nobody_asks_users_about_answers_that_they_never_got(watched: Eyes) -> None:
    watched.users.serves("canary", CHALLENGER, requests=200, failed=60)
    assert watched.errors(users=False).outcome is Outcome.PASS


def test_a_few_requests_keep_a_gate_running(alone: Eyes) -> None:
    alone.proxy.serves("canary", CHALLENGER, requests=3)
    assert (alone.errors().outcome, alone.latency().outcome) == (Outcome.RUNNING, Outcome.RUNNING)
