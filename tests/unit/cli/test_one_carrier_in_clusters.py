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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

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


def one_delivers(told: Told) -> None:
    hold(told, delivered_in(told))
    assert sorted(map(str, told.endings.values())) == ["None", "delivered"]


def one_or_neither_delivers(told: Told) -> None:
    """Another one is refused while the first may live; once that is over or dead, it delivers, everywhere."""
    if set(told.endings.values()) == {None}:
        # Each was killed, replaced, or refused as long as that was not known: repeated, one delivers.
        assert told.place.rules.broken == []
    else:
        hold(told, delivered_in(told))


def one_of_two_delivers(told: Told) -> None:
    one_or_neither_delivers(told)
    assert sorted(map(str, told.endings.values())) in (["None", "None"], ["None", "delivered"])


def rolls_back(told: Told) -> None:
    """No matter who carries the delivery; one that is over as delivered is not rolled back by a plain rollback."""
    hold(told, delivered_in(told))
    assert {code for name, code in told.endings.items() if "rollback" in name} == {0}
    # Who is rolled back by a person has not failed.
    assert Ending.FAILED not in told.endings.values()


def splits_nothing(told: Told) -> None:
    """Nobody tells the delivery to end: it ends where it was rolled back, or delivers everywhere."""
    hold(told, delivered_in(told))
    # 4 where it saw that the delivery went on in another region.
    assert told.endings["2 rollback without MLflow"] in (ExitCode.DELIVERED, ExitCode.OUTSIDE)


def carries_alone(told: Told) -> None:
    hold(told, delivered_in(told))


def leaves_what_is_promoted(told: Told) -> None:
    hold_at_rest(told.place)


Outcome = Callable[[Told], None]
RESUME, ROLL_BACK = ("resume", 3), ("rollback", 60)
STORIES: Sequence[tuple[str, int, Outcome, Sequence[tuple[Any, float]], dict[str, Any]]] = (
    ("two resume", 0, one_delivers, (RESUME, RESUME), {}),
    ("one sleeps and wakes up", 1003, one_or_neither_delivers, (RESUME, ("resume", 150)), {"asleep": True}),
    ("two roll back", 2002, rolls_back, (("rollback", 3), ("rollback", 3)), {"lost": 0.05}),
    ("carried elsewhere", 3001, rolls_back, (("resume", 1), ROLL_BACK), {"lost": 0.03}),
    ("on its way back", 4000, rolls_back, (("resume", 1), ("rollback", 40)), {"bad": True}),
    ("killed meanwhile", 5003, rolls_back, (("resume", 1), ROLL_BACK), {"killed": True}),
    ("resumed at once", 6002, rolls_back, (RESUME, ("rollback", 3)), {}),
    ("resumed twice", 7001, rolls_back, (RESUME, ("resume", 150), ("rollback", 200)), {"asleep": True}),
    ("by the clusters alone", 8000, splits_nothing, (("resume", 1), ("rollback without MLflow", 60)), {}),
    ("two deliver", 9003, one_of_two_delivers, (("deliver", 3), ("deliver the next", 3)), {}),
    ("one delivers and one resumes", 10002, one_of_two_delivers, (RESUME, ("deliver the next", 3)), {}),
    ("the next meanwhile", 11001, one_or_neither_delivers, (("resume", 1), ("deliver the next", 90)), {}),
    ("the next after a sleeper", 12000, one_or_neither_delivers, (RESUME, ("deliver the next", 150)), {"asleep": True}),
    (
        "the next after a dead one",
        13003,
        one_or_neither_delivers,
        (("deliver", 1), ("deliver the next", 150)),
        {"killed": True},
    ),
    ("back while delivered", 14002, rolls_back, (("deliver", 1), ROLL_BACK), {"lost": 0.03}),
    ("back while the next is delivered", 15001, rolls_back, (("deliver the next", 3), ROLL_BACK), {}),
    ("back and delivered anew", 16000, rolls_back, (("rollback", 3), ("deliver the next", 60)), {}),
    ("a guard alone", 17003, leaves_what_is_promoted, (), {"guarded": True}),
    ("a guard, and resumed", 18002, carries_alone, (("resume", 120),), {"lost": 0.03, "guarded": True}),
    ("a guard, and rolled back", 19001, carries_alone, (("rollback", 120),), {"lost": 0.03, "guarded": True}),
    ("a guard, and delivered", 20004, carries_alone, (("deliver the next", 120),), {"guarded": True}),
    (
        "a guard, and killed",
        21003,
        carries_alone,
        (("resume", 60), ("rollback", 120)),
        {"killed": True, "guarded": True},
    ),
)
"""The first seed of each is that of one of the layouts of regions."""


def cases() -> Iterator[object]:
    for name, first, outcome, people, more in STORIES:
        for seed in range(first, first + TIMES):
            yield pytest.param(Story(people, **more), seed, outcome, id=f"{name}-{seed}")


@pytest.mark.parametrize(("story", "seed", "outcome"), list(cases()))
def test_there_is_one_carrier_and_in_the_end_one_version(
    story: Story, seed: int, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome(told(story, seed, tmp_path, monkeypatch))


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
