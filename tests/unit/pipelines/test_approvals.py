"""People are asked before what the spec says, once for what belongs together, and their word stays in the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.delivery.identities import FakeProver
from fakes.delivery.world import CHALLENGER, CHAMPION, SIDE_BY_SIDE, Steps, World, a_spec

from pipelines.authority.answering import Hearing, Speaker
from pipelines.authority.approvals import refuse_useless
from pipelines.model import EXIT_CODES, Ending
from pipelines.run.approval_gate import POLL_SECONDS
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import ApproversSpec
from registry.model import Event
from tidegate.core.errors import ExitCode, OutsideError, Refused, UsageError

EVERYWHERE = {"eu-west-1": CHALLENGER, "us-east-1": CHALLENGER}
NOWHERE = {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}


def asking(*approvals: str, regions: str = "waves: [[eu-west-1], [us-east-1]]") -> Delivery:
    """Where a name is enough."""
    named = ", ".join(each if "by:" in each else each.replace("}", ", by: names}") for each in approvals)
    return a_spec(
        traffic=f"traffic: {{requests_per_second: 200}}\napprovals: [{named}]",
        regions=f"regions: {{{regions}, bake: 10s}}",
        shadow=SIDE_BY_SIDE["shadow"],
    )


def asked(world: World) -> dict[str, tuple[str, ...]]:
    return {step.id: step.approvals for step in world.plan.steps if step.approvals}


def says(world: World, word: str, what: str, *, by: str = "ann", reason: str = "") -> Callable[[], None]:
    """As `tidegate approve` does it, from a process of its own."""
    message = f"{by}: {reason}" if reason else by
    return lambda: world.answers(what, word, message)


@pytest.mark.parametrize(
    ("approval", "expected"),
    [
        ("{before: wave, wave: 2}", {"deploy@us-east-1": ("wave@2",)}),
        ("{before: canary}", {f"canary@{name}/10": (f"canary@{name}/10",) for name in EVERYWHERE}),
        ("{before: canary, region: us-east-1, weight: 50}", {"canary@us-east-1/50": ("canary@us-east-1/50",)}),
        ("{before: promote, region: eu-west-1}", {"promote@eu-west-1": ("promote@eu-west-1",)}),
        ("{before: finalize}", {"finalize": ("finalize",)}),
    ],
)
def test_what_is_asked_stands_in_the_plan(tmp_path: Path, approval: str, expected: dict[str, tuple[str, ...]]) -> None:
    assert asked(World(tmp_path, asking(approval))) == expected


async def test_a_step_waits_until_somebody_approves(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 2}"))
    world.when("deploy@us-east-1", "waiting", says(world, "approved", "wave@2", reason="looks fine"))
    result = await world.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    [waiting] = [event for event in world.ledger.events if event.kind == "waiting"]
    # How long the first wave took is the simulation's affair; from then on a day.
    assert re.fullmatch(
        r"for an approval of wave@2 until 2026-01-02 00:0\d UTC: `tidegate approve 1 wave@2 --by NAME`", waiting.message
    )
    assert waiting.data == {"approval": "wave@2"}
    order = [(event.step, event.kind) for event in world.ledger.events]
    assert order.index(("bake@1", "done")) < order.index(("wave@2", "approved"))
    assert order.index(("wave@2", "approved")) < order.index(("deploy@us-east-1", "started"))


async def test_the_regions_of_a_wave_go_on_at_one_word(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 1}", regions="waves: [[eu-west-1, us-east-1]]"))
    world.when("deploy@eu-west-1", "waiting", says(world, "approved", "wave@1"))
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert world.said("waiting") == ["deploy@eu-west-1"]


IN_VAIN: dict[str, tuple[str, str, Callable[[World], Callable[[], object]], Ending, str]] = {
    "refused": (
        "{before: wave, wave: 2}", "deploy@us-east-1",
        lambda world: says(world, "refused", "wave@2", by="bob", reason="sale at noon"),
        Ending.ROLLED_BACK, r"deploy@us-east-1: wave@2 was refused by bob \(named, not proven\): sale at noon",
    ),
    "no answer": (
        "{before: wave, wave: 2, within: 10m}", "deploy@us-east-1", lambda world: lambda: None,
        Ending.INCONCLUSIVE, "deploy@us-east-1: nobody has approved or refused wave@2 since 2026-01-01 .*",
    ),
    "its canary dies": (
        "{before: canary, region: eu-west-1, weight: 50}", "canary@eu-west-1/50",
        lambda world: lambda: world.fleets["eu-west-1"].kill(CHALLENGER),
        Ending.ROLLED_BACK, "canary@eu-west-1/50: the canary does not serve.*",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", IN_VAIN)
async def test_what_is_waited_for_in_vain_takes_everything_back(tmp_path: Path, case: str) -> None:
    approval, step, happens, ending, reason = IN_VAIN[case]
    world = World(tmp_path, asking(approval))
    world.when(step, "waiting", happens(world))
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (ending, EXIT_CODES[ending])
    assert re.fullmatch(reason, result.reason)
    assert world.stable_versions() == NOWHERE


async def test_an_answer_may_come_before_the_question(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 2}"))
    world.when("build", "started", says(world, "approved", "wave@2"))
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert world.said("waiting") == []


RISK = "{before: promote, region: eu-west-1, by: {groups: [risk]}}"
PROMOTE = "promote@eu-west-1"


def proven(world: World, credential: str, *, reason: str = "", refuse: bool = False) -> Callable[[], None]:
    """As `tidegate approve` does it with a proof, for what is asked now."""

    def answer() -> None:
        events = world.ledger.recorded()
        hearing = Hearing(world.spec, world.ledger.delivery, events, world.identities, world.clock)
        speaker = Speaker(prover=FakeProver(credential))
        world.appends(hearing.answer(PROMOTE, speaker, reason=reason, refuse=refuse))

    return answer


async def promoting(folder: Path) -> Steps:
    """A delivery of which the next step waits for somebody of risk."""
    one = "regions: {waves: [[eu-west-1]], bake: 10s}"
    world = World(folder, a_spec(regions=one, traffic=f"traffic: {{requests_per_second: 200}}\napprovals: [{RISK}]"))
    steps = Steps(world, folder)
    await steps.until("canary@eu-west-1/50")
    return steps


async def test_a_proven_approval_lets_it_go_on_for_the_evidence_that_was_there(tmp_path: Path) -> None:
    steps = await promoting(tmp_path)
    world = steps.world

    def more_evidence() -> None:
        proven(world, "ann of risk")()
        says(world, "approved", PROMOTE, by="Head of Model Risk")()
        data = {"gate": "latency", "outcome": "pass", "reason": "", "numbers": {}, "region": "eu-west-1"}
        world.ledger.append(Event(at=world.now(), step="canary@eu-west-1/50", kind="verdict", message="", data=data))
        world.when(PROMOTE, "waiting", proven(world, "bob of risk", reason="looks fine"))

    world.identities.approvers = ApproversSpec(allowed_signers=Path("k"))
    world.when(PROMOTE, "waiting", more_evidence)
    assert (await steps.take(PROMOTE)).done
    events = world.recorder.events
    first = next(event for event in events if event.kind == "waiting").message
    assert first.startswith("for an approval of promote@eu-west-1 by one of risk until 2026-01-0")
    assert first.endswith(": `tidegate approve 1 promote@eu-west-1 --identity ssh:FILE`")
    assert [event.message.partition(" by ")[2] for event in events if event.kind == "ignored"] == [
        "ann does not count: it was signed for another evidence",
        "Head of Model Risk does not count: it was said before this was asked",
    ]
    said = "promote@eu-west-1 was approved by bob (SSH key SHA256:x): looks fine"
    assert [event.message for event in events if event.kind == "allowed"] == [said]
    assert world.story.allowed == (said,)


async def test_a_ledger_that_is_not_there_for_a_while_does_not_end_the_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 2}"))
    read, silent = world.ledger.recorded, iter(range(100))

    def unreadable() -> list[Event]:
        if next(silent, None) is None:
            return read()
        raise OutsideError("MLflow store: no answer")

    def lose() -> None:
        says(world, "approved", "wave@2")()
        monkeypatch.setattr(world.ledger, "recorded", unreadable)

    world.when("deploy@us-east-1", "waiting", lose)
    before = world.clock.elapsed
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert world.clock.elapsed - before > 100 * POLL_SECONDS


async def test_an_approval_survives_the_process_that_waited_for_it(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 2, within: 10m}"))
    steps = Steps(world, tmp_path)
    await steps.until("bake@1")

    class KilledError(BaseException):
        pass

    def die() -> None:
        raise KilledError

    world.when("deploy@us-east-1", "waiting", die)
    with pytest.raises(KilledError):
        await steps.take("deploy@us-east-1")
    says(world, "approved", "wave@2")()
    assert (await steps.take("deploy@us-east-1")).done
    assert world.said("waiting") == ["deploy@us-east-1"]


@pytest.mark.long
async def test_the_time_to_answer_does_not_begin_again_with_each_process(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 2, within: 10m}"))
    steps = Steps(world, tmp_path)
    await steps.until("bake@1")
    world.when("deploy@us-east-1", "waiting", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        await steps.take("deploy@us-east-1")
    world.clock.elapsed += 600
    taken = await steps.take("deploy@us-east-1")
    assert (taken.done, taken.exit_code) == (False, ExitCode.INCONCLUSIVE)


def test_an_answer_that_nobody_waits_for_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, asking("{before: wave, wave: 2}"))
    plan, started = world.plan, Event(at=world.now(), step="deploy@us-east-1", kind="started", message="")
    refuse_useless(plan, [], "wave@2")
    refuse_useless(plan, [], "freeze")
    with pytest.raises(UsageError, match="has no approval for `wave@3`; it asks for: wave@2; or freeze"):
        refuse_useless(plan, [], "wave@3")
    with pytest.raises(Refused, match="deploy@us-east-1 has begun already"):
        refuse_useless(plan, [started], "wave@2")
