"""Shadow on users' own questions: a real Envoy copies them, both arms keep the same ones, gates judge pairs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest
from fakes.engines.engine_image import PACKAGE, STAND_IN, import_environment, write_engine_root
from fakes.engines.local_fleet import REGION
from fakes.services.chat_servers import FakeJudge

from gates.analyses.agreement import AgreementGate
from gates.analyses.drift import DriftGate
from gates.analyses.judge import ScoresGate
from gates.evidence.batch import ArmName
from gates.judge.judge import Judge, ScoredPairs
from gates.judge.spec import JudgeControl, JudgeGate
from gates.model import GateOutcome
from gates.sequential_test import AnalysisPlan, SequentialTest
from pipelines.adapters.samples import LocalSamples, file_of
from pipelines.run.user_answers import AnsweredUsers
from pipelines.spec.sections import SamplesSpec
from rollouts.adapters.host_client import FleetHost
from rollouts.model import PORT, Engine, RegionState
from tidegate.core.clock import SystemClock

# However many users a busy machine serves in a minute, there must be enough of them.
pytestmark = [
    pytest.mark.slow(reason="two trials with real engines behind a real Envoy, a minute of users each"),
]

FASTER = 10.0
THINGS = ("parcel", "refund", "invoice", "voucher", "battery", "charger", "helmet", "saddle", "pedal", "mirror")
JUDGED = ScoresGate(max_drop=0.05)
JUDGE = JudgeGate(endpoint="http://127.0.0.1:9/v1", model="judge", control=JudgeControl(min_asked=10, share=0.5))
OUTPUTS = {"length": 0.2, "refusal": 0.1}


class FastClock(SystemClock):
    """Its seconds pass ten times faster than the machine's."""

    def monotonic(self) -> float:
        return super().monotonic() * FASTER

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / FASTER)


def entrypoint(folder: Path, version: str, samples: Path, *, forgets: str = "nothing") -> Engine:
    """An engine as its image starts it, with a stand-in for vLLM."""
    root = write_engine_root(folder / version)
    command = (sys.executable, "-m", PACKAGE, "serve", "--root", str(root), "--run", str(folder / f"run-{version}"))
    command += ("--host", "127.0.0.1", "--port", PORT, "--server", STAND_IN, "--known-as", version)
    return Engine(
        version=version,
        digest=f"sha256-of-{version}",
        model="support-llm",
        command=(*command, "--samples", str(samples), "--", "--pace", "0.001", "--forgets", forgets),
        environment=import_environment(root),
        workdir=str(folder),
        memory_bytes=64 << 20,
        ready_path="/tidegate/ready",
    )


async def ask(entry: str, until: asyncio.Event) -> None:
    """Users, each of whom asks for another thing; one asks for a thing that a version may have forgotten."""
    async with httpx.AsyncClient(base_url=entry, trust_env=False, timeout=30) as users:
        number = 0
        while not until.is_set():
            asked = [f"my {THINGS[(number + n) % 10]} {number + n}?" for n in range(5)]
            bodies = ({"prompt": prompt, "max_tokens": 8, "stream": True} for prompt in asked)
            answers = await asyncio.gather(*(users.post("/v1/completions", json=body) for body in bodies))
            assert all(answer.headers["x-tidegate-role"] == "stable" for answer in answers)
            number += len(asked)


async def shadow(host: FleetHost, folder: Path, engine: Engine) -> SequentialTest:
    """What the gates say of half of users' requests, which both arms keep."""
    fleet, clock = host.fleet(REGION), FastClock()
    await fleet.deploy(engine)
    state = await fleet.mirror(100)
    assert state.stable and state.canary
    plan = AnalysisPlan(
        settings={
            "agreement": AgreementGate(min_similarity=0.85),
            "judge": JUDGED,
            "drift": DriftGate(features=OUTPUTS),
        },
        sources=dict.fromkeys(("agreement", "judge", "drift"), ("samples",)),
        mirrored=1.0,
    )
    judge = Judge(JUDGE, FakeJudge(worth=lambda asked, answer: 0.9 if answer.strip() == asked else 0.2), seed=1)
    test, over = SequentialTest(plan), asyncio.Event()
    users = asyncio.create_task(ask(state.entry, over))
    answers = AnsweredUsers(
        LocalSamples(folder, SamplesSpec(), SystemClock()),
        clock,
        {ArmName.STABLE: state.stable, ArmName.CANARY: state.canary},
        region=REGION,
        shares=dict.fromkeys((state.stable.version, state.canary.version), 0.5),
        scored=ScoredPairs(judge),
        copied=1.0,
    )
    async with answers.taking():
        outcomes: set[GateOutcome] = set()
        while GateOutcome.FAIL not in outcomes and outcomes != {GateOutcome.PASS}:
            await clock.sleep(10)
            test.take(answers.drain())
            outcomes = {each.outcome for each in test.verdicts()}
        assert [each.reason for each in answers.blind()] == []
        counts = answers.counts
    over.set()
    await users
    assert counts["canary"] == pytest.approx(counts["stable"], rel=0.2)
    await nothing_is_kept(folder, state)
    return test


async def nothing_is_kept(folder: Path, state: RegionState) -> None:
    """No engine keeps or holds a sample any more, and nobody asks for any."""
    assert not file_of(folder, REGION).exists()
    async with httpx.AsyncClient(trust_env=False) as person:
        for arm in (state.stable, state.canary):
            assert arm
            async with asyncio.timeout(20):
                while (said := (await person.get(f"{arm.url}/tidegate/status")).json()["samples"])["on"]:
                    await asyncio.sleep(0.1)
            assert said["held"] == 0 and said["taken"] > 0, json.dumps(said)


async def test_a_version_that_forgot_a_tenth_of_what_users_ask_is_found_and_the_next_one_passes(
    host: FleetHost, tmp_path: Path
) -> None:
    folder = tmp_path / "samples"
    fleet = host.fleet(REGION)
    await fleet.deploy(entrypoint(tmp_path, "6", file_of(folder, REGION)))
    bad = await shadow(host, folder, entrypoint(tmp_path, "7", file_of(folder, REGION), forgets="saddle"))
    outcomes = {each.gate: each for each in bad.verdicts()}
    assert outcomes["judge"].outcome is GateOutcome.FAIL, outcomes["judge"]
    assert outcomes["agreement"].numbers["mean_similarity_score"] == pytest.approx(0.9, abs=0.05)
    await fleet.rollback(None)
    good = await shadow(host, folder, entrypoint(tmp_path, "8", file_of(folder, REGION)))
    assert {each.outcome for each in good.verdicts()} == {GateOutcome.PASS}, good.verdicts()
