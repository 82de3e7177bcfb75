"""Anyone who resumes, delivers and takes back at the same time, in whatever order requests arrive: one carrier, no
split.

Each story begins at a moment of a delivery whose process died there, and is decided by its seed: who starts when, how
long each request takes, which get lost or arrive late, who is killed or not scheduled for minutes.
`TIDEGATE_INTERLEAVINGS=20` tells twenty seeds of each; after a change of what they are about, tell some.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

import httpx
import pytest
from fakes.clusters.carriers import NEXT, KeptPlace, Place, delivery_in, in_story_time, serve_champion
from fakes.clusters.interleaving import Killed, Life
from fakes.clusters.region import NAME, NAMESPACE
from fakes.delivery.world import CHALLENGER, CHAMPION, planned
from fakes.kube.server import FakeTransport

from pipelines.model import Ending
from rollouts.cluster.carrier import LIVE_SECONDS, UNATTENDED_SECONDS, Carrier
from rollouts.manifests.conventions import CARRIER
from tidegate.core.errors import ExitCode

TIMES = int(os.environ.get("TIDEGATE_INTERLEAVINGS", "1"))
DELIVERY = f"{1:032x}"
"""Of the process that died."""
Waves = tuple[tuple[str, ...], ...]
WAVES: Sequence[Waves] = ((("a",),), (("a",),), (("a",), ("b",)), (("a",),), (("a", "b"),), (("a",), ("b", "c")))
Command = Literal["resume", "rollback", "rollback without MLflow", "deliver", "deliver the next"]


@dataclass(frozen=True)
class Story:
    """Who does what, each beginning so many seconds after the story at most."""

    people: Sequence[tuple[Command, float]]
    lost: float = 0.0
    bad: bool = False
    """Whether the version fails its gates: then its delivery goes back by itself."""
    killed: bool = False
    """Whether the first of them is, some time."""
    asleep: bool = False
    """Whether the first of them is not scheduled for a while: longer than it takes to be given up for dead."""
    guarded: bool = False
    """Whether every region has its guard, and the story begins a minute before a trial is taken for unattended."""


TWO_RESUME = Story((("resume", 3), ("resume", 3)))
ONE_SLEEPS = Story((("resume", 3), ("resume", 150)), asleep=True)
TWO_ROLL_BACK = Story((("rollback", 3), ("rollback", 3)), lost=0.05)
ELSEWHERE = Story((("resume", 1), ("rollback", 60)), lost=0.03)
ON_ITS_WAY_BACK = Story((("resume", 1), ("rollback", 40)), bad=True)
KILLED = Story((("resume", 1), ("rollback", 60)), killed=True)
AT_ONCE = Story((("resume", 3), ("rollback", 3)))
WITHOUT_MLFLOW = Story((("resume", 1), ("rollback without MLflow", 60)))
TWO_PEOPLE_AND_A_SLEEPER = Story((("resume", 3), ("resume", 150), ("rollback", 200)), asleep=True)
TWO_DELIVER = Story((("deliver", 3), ("deliver the next", 3)))
ONE_DELIVERS_AND_ONE_RESUMES = Story((("resume", 3), ("deliver the next", 3)))
THE_NEXT_MEANWHILE = Story((("resume", 1), ("deliver the next", 90)))
THE_NEXT_AFTER_A_SLEEPER = Story((("resume", 3), ("deliver the next", 150)), asleep=True)
THE_NEXT_AFTER_A_DEAD_ONE = Story((("deliver", 1), ("deliver the next", 150)), killed=True)
BACK_WHILE_DELIVERED = Story((("deliver", 1), ("rollback", 60)), lost=0.03)
BACK_WHILE_THE_NEXT_IS_DELIVERED = Story((("deliver the next", 3), ("rollback", 60)))
BACK_AND_DELIVERED_ANEW = Story((("rollback", 3), ("deliver the next", 60)))
GUARD_ALONE = Story((), guarded=True)
GUARD_AND_RESUME = Story((("resume", 120),), lost=0.03, guarded=True)
GUARD_AND_ROLLBACK = Story((("rollback", 120),), lost=0.03, guarded=True)
GUARD_AND_DELIVER = Story((("deliver the next", 120),), guarded=True)
GUARD_AND_KILLED = Story((("resume", 60), ("rollback", 120)), killed=True, guarded=True)


def seeds(first: int, one: int = 0) -> list[int]:
    """Of a test that has one story: `one` of the layouts of regions, and as many more as are asked for."""
    return [first + one + more for more in range(TIMES)]


def stories(story: Story, name: str, first: int, one: int = 0) -> list[object]:
    """One of several stories of a test, with its seeds."""
    return [pytest.param(story, seed, id=f"{name}-{seed}") for seed in seeds(first, one)]


@cache
def moments(waves: Waves) -> dict[tuple[str, str], KeptPlace]:
    """What a delivery leaves when it is killed as a step begins, moves users, or is done; by step and kind."""
    found: dict[tuple[str, str], KeptPlace] = {}
    with pytest.MonkeyPatch.context() as patches:
        place = Place(delivery_in(*waves), Path(mkdtemp()))
        in_story_time(patches, place.story)

        def keep(step: str, kind: str) -> Callable[[], None]:
            return lambda: found.update({(step, kind): place.kept()})

        async def story() -> Ending | None:
            await serve_champion(place)
            for step in planned(place.spec, 0).steps:
                for kind in ("started", "traffic", "done"):
                    place.when(step.id, kind, keep(step.id, kind))
            return await place.deliver(Life("the first"))

        assert asyncio.run(story()) is Ending.DELIVERED
        assert place.rules.broken == []
    return found


@dataclass
class Told:
    """A story after its end."""

    place: Place
    endings: dict[str, Ending | int | None]
    """By name; None for the one who was killed, or may not carry the delivery."""


async def done(place: Place, life: Life, command: Command) -> Ending | int | None:
    """What comes of the command."""
    match command:
        case "resume":
            return await place.resume(life, DELIVERY)
        case "deliver":
            return await place.deliver(life)
        case "deliver the next":
            return await place.deliver(life, NEXT)
        case _:
            return await place.rollback(life, mlflow=command == "rollback")


async def tell(place: Place, story: Story) -> Told:
    """Let them all go, wait until they have ended, and for what comes after."""
    dice, endings = place.story.chance, {}

    async def go(name: str, command: Command, starts: float) -> None:
        life = Life(name)
        await place.time.sleep(starts)
        began = place.time.elapsed
        first = name.startswith("1")
        work = asyncio.ensure_future(done(place, life, command))
        if first and story.asleep:
            at, seconds = dice.uniform(0, 60), dice.uniform(LIVE_SECONDS, 150)
            place.time.call_later(at, lambda: setattr(life, "asleep_until", place.time.elapsed + seconds))
        if first and story.killed:
            place.time.call_later(dice.uniform(0, 60), lambda: (life.kill(), work.cancel()))
        try:
            endings[name] = await work
        except (Killed, asyncio.CancelledError):
            assert life.is_over, name
            endings[name] = None
        if command == "rollback":
            place.rules.rollback_returned(began, users_alone=story.asleep)

    people = [go(f"{at} {what}", what, dice.uniform(0, most)) for at, (what, most) in enumerate(story.people, start=1)]
    guards = asyncio.ensure_future(place.guard(Life("guard"))) if story.guarded else None
    await asyncio.gather(*people)
    await place.time.sleep(90)
    if guards is not None:
        await place.time.sleep(120)
        guards.cancel()
        await asyncio.wait([guards])
    return Told(place, endings)


def told(story: Story, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    dice = random.Random(seed)
    waves = WAVES[seed % len(WAVES)]
    moment = dice.choice(sorted(moments(waves)))
    like = moments(waves)[moment]
    later = UNATTENDED_SECONDS - 60 if story.guarded else LIVE_SECONDS + 1
    place = Place(delivery_in(*waves), folder, seed=seed, lost=story.lost, like=like, later=later)
    if story.bad:
        place.evidence.serves("canary", CHALLENGER, per_second=40, failed=0.5)
    in_story_time(monkeypatch, place.story)
    return asyncio.run(tell(place, story))


def hold_at_rest(place: Place) -> None:
    """The rules were kept, and no region has anything on trial."""
    assert place.rules.broken == []
    for region in place.regions.values():
        status = region.rollout["status"]
        assert region.splits[-1] == (0, 0)
        assert (status["currentPodHash"], status.get("abort", False)) == (status["stableRS"], False)


def hold(told: Told, serves: str | None = None) -> None:
    """As above, and all regions serve the same."""
    place = told.place
    hold_at_rest(place)
    versions = set(place.stable_versions().values())
    assert len(versions) == 1
    assert place.aliases.champion in versions
    if serves is not None:
        assert versions == {serves}


def delivered_in(told: Told) -> str:
    """The version of the last delivery that came to its end there, or the champion where none did."""
    delivered = [name for name, ending in told.endings.items() if ending is Ending.DELIVERED]
    if any("the next" in name for name in delivered):
        return NEXT
    return CHALLENGER if delivered else CHAMPION


@pytest.mark.parametrize("seed", seeds(0))
def test_of_two_who_resume_one_delivers(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = told(TWO_RESUME, seed, tmp_path, monkeypatch)
    hold(story, CHALLENGER)
    assert sorted(map(str, story.endings.values())) == ["None", "delivered"]


@pytest.mark.parametrize("seed", seeds(1000, 3))
def test_one_who_was_taken_for_dead_and_wakes_up_changes_nothing_any_more(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced meanwhile, or was not; either way one of them has delivered, everywhere."""
    story = told(ONE_SLEEPS, seed, tmp_path, monkeypatch)
    if set(story.endings.values()) == {None}:
        # Both heard that somebody else carries it on: repeated, it is.
        assert story.place.rules.broken == []
        return
    hold(story)
    delivered = Ending.DELIVERED in story.endings.values()
    assert delivered == (set(story.place.stable_versions().values()) == {CHALLENGER})


@pytest.mark.parametrize("seed", seeds(2000, 2))
def test_two_rollbacks_are_one(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = told(TWO_ROLL_BACK, seed, tmp_path, monkeypatch)
    hold(story, CHAMPION)
    assert list(story.endings.values()) == [0, 0]


@pytest.mark.parametrize(
    ("story", "seed"),
    [
        *stories(ELSEWHERE, "carried elsewhere", 3000, 1),
        *stories(ON_ITS_WAY_BACK, "on its way back", 4000),
        *stories(KILLED, "killed meanwhile", 5000, 3),
        *stories(AT_ONCE, "resumed at once", 6000, 2),
        *stories(TWO_PEOPLE_AND_A_SLEEPER, "resumed twice", 7000, 1),
    ],
)
def test_a_rollback_takes_back_no_matter_who_carries_the_delivery(
    story: Story, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = told(story, seed, tmp_path, monkeypatch)
    delivered = Ending.DELIVERED in ended.endings.values()
    # One that is over as delivered is not taken back by a plain rollback.
    hold(ended, CHALLENGER if delivered else CHAMPION)
    assert [code for name, code in ended.endings.items() if "rollback" in name] == [0]


@pytest.mark.parametrize("seed", seeds(8000))
def test_a_rollback_by_the_clusters_alone_splits_nothing(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells the delivery to end: it ends where it was taken back, or delivers everywhere."""
    story = told(WITHOUT_MLFLOW, seed, tmp_path, monkeypatch)
    hold(story, CHALLENGER if Ending.DELIVERED in story.endings.values() else CHAMPION)
    # 4 where it saw that the delivery went on in another region.
    assert story.endings["2 rollback without MLflow"] in (ExitCode.DELIVERED, ExitCode.OUTSIDE)


@pytest.mark.parametrize(
    ("story", "seed"),
    [
        *stories(TWO_DELIVER, "two deliver", 9000, 3),
        *stories(ONE_DELIVERS_AND_ONE_RESUMES, "at once", 10000, 2),
        *stories(THE_NEXT_MEANWHILE, "meanwhile", 11000, 1),
        *stories(THE_NEXT_AFTER_A_SLEEPER, "one sleeps", 12000),
        *stories(THE_NEXT_AFTER_A_DEAD_ONE, "one died", 13000, 3),
    ],
)
def test_a_model_has_one_delivery_at_a_time(
    story: Story, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one is refused while the first may live; once that is over or dead, it delivers, everywhere."""
    ended = told(story, seed, tmp_path, monkeypatch)
    if set(ended.endings.values()) == {None}:
        # One was killed or replaced, and the other refused as long as that was not known: repeated, it delivers.
        assert ended.place.rules.broken == []
        return
    hold(ended, delivered_in(ended))
    if story in (TWO_DELIVER, ONE_DELIVERS_AND_ONE_RESUMES):
        assert sorted(map(str, ended.endings.values())) == ["None", "delivered"]


@pytest.mark.parametrize(
    ("story", "seed"),
    [
        *stories(BACK_WHILE_DELIVERED, "the same version", 14000, 2),
        *stories(BACK_WHILE_THE_NEXT_IS_DELIVERED, "the next", 15000, 1),
        *stories(BACK_AND_DELIVERED_ANEW, "again", 16000),
    ],
)
def test_a_rollback_while_a_fresh_delivery_runs_leaves_one_version(
    story: Story, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = told(story, seed, tmp_path, monkeypatch)
    hold(ended, delivered_in(ended))
    # Who is taken back by a person has not failed.
    assert Ending.FAILED not in ended.endings.values()
    assert [code for name, code in ended.endings.items() if "rollback" in name] == [0]


@pytest.mark.parametrize(
    ("story", "seed"),
    [
        *stories(GUARD_AND_RESUME, "resumed", 18000, 2),
        *stories(GUARD_AND_ROLLBACK, "taken back", 19000, 1),
        *stories(GUARD_AND_DELIVER, "delivered again", 20000, 4),
        *stories(GUARD_AND_KILLED, "killed again", 21000, 3),
    ],
)
def test_a_guard_carries_alone_what_it_takes_back(
    story: Story, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = told(story, seed, tmp_path, monkeypatch)
    hold(ended, delivered_in(ended))


@pytest.mark.parametrize("seed", seeds(17000, 3))
def test_a_guard_ends_a_trial_and_leaves_what_is_promoted(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_at_rest(told(GUARD_ALONE, seed, tmp_path, monkeypatch).place)


def test_the_same_seed_tells_the_same_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [told(ELSEWHERE, 42, tmp_path / each, monkeypatch).place.rules.log for each in ("once", "again")]
    assert logs[0] == logs[1]
    assert len(logs[0]) > 10


async def test_the_rules_see_a_write_of_one_who_was_replaced(tmp_path: Path) -> None:
    place = Place(delivery_in(("a",)), tmp_path)
    await serve_champion(place)
    before, after = Life("before"), Life("after")
    old = Carrier(token="old", who="ci")
    for life, carrier in ((before, old), (after, Carrier(token="new", who="laptop", over=frozenset({"old"})))):
        async with place.fleets(life, carrier) as fleets:
            await fleets["a"].shift(0)
    assert place.rules.broken == []
    place.rules.knows(before, old)
    way = place.story.transport(FakeTransport(place.regions["a"].api), before)
    url = f"https://a.example/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}/httproutes/{NAME}"
    async with httpx.AsyncClient(transport=way, headers={"content-type": "application/merge-patch+json"}) as client:
        await client.patch(url, json={"metadata": {"annotations": {CARRIER: "1"}}})
    assert [broken.partition(": ")[2] for broken in place.rules.broken] == ["wrote with number 2 onto number 3"]
