"""A wave that was promoted is written to a real repository, once, whatever happens meanwhile; and rolled back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, Steps, World
from fakes.services.git_repository import TeamRepository

from pipelines.model import Ending
from pipelines.repository import Applied, GitRemote
from pipelines.spec.git import GitSpec
from tidegate.core.clock import SystemClock

VALUES = """\
# {region}: mind the quota
engine:
  version: "1"   # of the model
  image: registry.example/llm@sha256:1
"""
REGIONS = ("eu-west-1", "us-east-1")
VERSION = {"path": "apps/{region}/values.yaml", "set": {"/engine/version": "{version}"}}


def path(region: str) -> str:
    return f"apps/{region}/values.yaml"


class Team(World):
    """A delivery whose team has its regions in Git."""

    def __init__(self, folder: Path, **said: Any) -> None:
        super().__init__(folder)
        self.repository = TeamRepository(folder, {path(each): VALUES.format(region=each) for each in REGIONS})
        git = {"repository": self.repository.url, "files": [VERSION], **said}
        self.spec = self.spec.model_copy(update={"git": GitSpec.model_validate(git)})
        self.open()

    def open(self, **more: Any) -> GitRemote:
        """As a process that has just begun."""
        assert self.spec.git is not None
        self.git = GitRemote(self.spec.git, SystemClock(), **more)
        return self.git

    def versions_in_git(self) -> list[str]:
        texts = [self.repository.text(path(each)) for each in REGIONS]
        return [text.split('version: "')[1][0] for text in texts]


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


async def test_each_wave_is_one_commit_of_the_changed_lines(team: Team) -> None:
    first = team.repository.commits()[0]
    result = await team.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    newest, before, *rest = team.repository.commits()
    assert rest == [first]
    changed = ['-  version: "1"   # of the model', '+  version: "2"   # of the model']
    assert [team.repository.changed(each) for each in (newest, before)] == [changed, changed]
    assert team.repository.message(before).splitlines() == [
        "tidegate <tidegate@localhost>",
        "support-llm 2 serves eu-west-1",
        "",
        "apps/eu-west-1/values.yaml: /engine/version: 1 -> 2",
        "",
        "Tidegate-Delivery: 1",
        "Tidegate-Version: models:/support-llm/2",
        "Tidegate-Previous: 1",
        "",
    ]
    order = [step for step in team.said("done") if step.split("@")[0] in ("promote", "git", "bake")]
    assert order == [f"{stage}@{at}" for wave, region in enumerate(REGIONS, 1)
                     for stage, at in (("promote", region), ("git", wave), ("bake", wave))]  # fmt: skip


@pytest.mark.long
async def test_a_file_of_all_regions_is_written_with_the_last_wave(tmp_path: Path) -> None:
    shared = {"path": "shared.yaml", "set": {"/version": "{version}", "/engine": "{model} {engine}"}}
    team = Team(tmp_path, files=[VERSION, shared])
    team.repository.person_writes({"shared.yaml": "version: 1\nengine: ''\n"})
    await team.deliver()
    texts = [team.repository.text("shared.yaml", each) for each in team.repository.commits()[:2]]
    assert texts == ['version: 2\nengine: "support-llm 2"\n', "version: 1\nengine: ''\n"]


async def test_a_version_that_is_taken_back_is_taken_back_in_git_too(team: Team) -> None:
    team.when("canary@us-east-1/10", "started", lambda: team.evidence.serves("canary", CHALLENGER, failed=0.5))
    result = await team.deliver()
    assert result.ending is Ending.ROLLED_BACK, result.reason
    assert team.versions_in_git() == [CHAMPION, CHAMPION]
    assert len(team.repository.commits()) == 3
    said = team.repository.message().splitlines()
    assert said[1] == "support-llm 1 again serves eu-west-1, us-east-1"
    assert "canary@us-east-1/10: gate errors" in said[3]
    assert team.said("undone") == ["git@1"]


@pytest.mark.long
async def test_what_others_have_written_meanwhile_stays(team: Team) -> None:
    other = VALUES.format(region=REGIONS[0]).replace('"1"', '"9"')
    team.when("bake@1", "started", lambda: team.repository.person_writes({path(REGIONS[0]): other}))
    team.when("canary@us-east-1/10", "started", lambda: team.evidence.serves("canary", CHALLENGER, failed=0.5))
    await team.deliver()
    assert team.repository.text(path(REGIONS[0])) == other
    assert any("changed by others since, and left as it is: apps/eu-west-1" in each.message
               for each in team.recorder.events)  # fmt: skip


@pytest.mark.long
async def test_one_who_pushes_at_the_same_time_is_no_obstacle(team: Team) -> None:
    team.when("git@1", "git", lambda: team.repository.person_writes({"README.md": "hello\n"}, "a faster person"))
    result = await team.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    assert team.versions_in_git() == [CHALLENGER, CHALLENGER]
    assert team.repository.text("README.md") == "hello\n"
    assert any("somebody else has pushed meanwhile" in each.message for each in team.recorder.events)


@pytest.mark.long
@pytest.mark.parametrize("dies", ["before the push", "after the push"])
async def test_a_process_that_dies_around_its_push_is_carried_on(dies: str, tmp_path: Path) -> None:
    team = Team(tmp_path)
    steps = Steps(team, tmp_path / "disks")
    (tmp_path / "disks").mkdir()
    await steps.until("promote@eu-west-1")
    remote, push = team.open(), GitRemote.commit

    def dying(*arguments: Any, **named: Any) -> str:
        if dies == "after the push":
            push(remote, *arguments, **named)
        raise KeyError("killed")

    remote.commit = dying  # type: ignore[method-assign]
    with pytest.raises(KeyError, match="killed"):
        await steps.take("git@1")
    team.open()
    # A bug is told in the ledger; a process that was killed says nothing.
    team.ledger.events = [each for each in team.ledger.events if each.kind != "failed"]
    result = await steps.resume()
    assert result.ending is Ending.DELIVERED, result.reason
    assert team.versions_in_git() == [CHALLENGER, CHALLENGER]
    assert len(team.repository.commits()) == 3


@pytest.mark.long
async def test_a_delivery_that_is_closed_by_another_process_is_taken_back_in_git(tmp_path: Path) -> None:
    team = Team(tmp_path)
    (tmp_path / "disks").mkdir()
    steps = Steps(team, tmp_path / "disks")
    await steps.until("git@1")
    assert team.versions_in_git() == [CHALLENGER, CHAMPION]
    team.open()
    result = await steps.close()
    assert result.ending is Ending.INTERRUPTED
    assert team.versions_in_git() == [CHAMPION, CHAMPION]


async def test_a_protected_branch_ends_the_delivery_with_its_own_words(team: Team) -> None:
    team.repository.hook("pre-receive", "echo 'GL-HOOK-ERR: main is protected' >&2; exit 1")
    result = await team.deliver()
    assert result.ending is Ending.FAILED
    assert "does not take the commit" in result.reason
    assert "GL-HOOK-ERR: main is protected" in result.reason
    assert team.stable_versions() == dict.fromkeys(REGIONS, CHAMPION)
    assert team.versions_in_git() == [CHAMPION, CHAMPION]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ([{**VERSION, "path": "apps/{region}/gone.yaml"}], "apps/eu-west-1/gone.yaml: found no such file"),
        ([{**VERSION, "set": {"/engine/tag": "{version}"}}], "values.yaml:3: /engine/tag: found no such field"),
    ],
)
async def test_a_field_that_is_not_there_ends_the_delivery(files: Any, problem: str, tmp_path: Path) -> None:
    team = Team(tmp_path, files=files)
    result = await team.deliver()
    assert (result.ending, int(result.exit_code)) == (Ending.FAILED, 2)
    assert problem in result.reason
    assert team.stable_versions() == dict.fromkeys(REGIONS, CHAMPION)


async def test_a_repository_that_is_away_is_waited_for_and_then_given_up(team: Team) -> None:
    hidden = team.repository.bare.with_name("away.git")
    team.when("promote@eu-west-1", "done", lambda: team.repository.bare.rename(hidden))
    result = await team.deliver()
    assert result.ending is Ending.FAILED
    # A folder that is not there is one that is not allowed: nothing of it passes by waiting.
    assert "does not appear to be a git repository" in result.reason
    assert "Git may still say version 2" not in result.reason


class Tool:
    """What Argo CD says: simulated; how its objects are read has tests of its own."""

    def __init__(self, team: Team, *, late: float, moves: bool = True) -> None:
        self.team, self.late, self.moves = team, late, moves
        self.at = team.repository.commits()[0]
        self.asked: float | None = None

    async def applied(self, region: str) -> Applied:
        now = self.team.clock.monotonic()
        self.asked = now if self.asked is None else self.asked
        newest = self.team.repository.commits()[0]
        if self.moves and newest != self.at and now - self.asked >= self.late:
            self.at, self.asked = newest, None
        return Applied(who=f"Argo CD application llm-{region}", revisions=(self.at,), in_sync=True, words="Synced")


SYNC = {"argo_cd": {"application": "llm-{region}"}, "within": "10m"}


@pytest.mark.long
async def test_the_sync_is_waited_for_also_of_a_later_commit(tmp_path: Path) -> None:
    team = Team(tmp_path, sync=SYNC)
    first = team.repository.commits()[0][:10]
    team.open(synced=Tool(team, late=60))
    team.when("git@1", "done", lambda: team.repository.person_writes({"README.md": "hello\n"}))
    result = await team.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    said = [each.message for each in team.recorder.events if each.step == "git@1" and each.kind == "git"]
    assert f"eu-west-1: Argo CD application llm-eu-west-1 is at {first}: Synced; waiting for commit" in said[-2]
    assert said[-1] == "eu-west-1: Argo CD application llm-eu-west-1 has applied it"


@pytest.mark.long
async def test_a_sync_that_does_not_come_ends_the_delivery(tmp_path: Path) -> None:
    team = Team(tmp_path, sync=SYNC)
    team.open(synced=Tool(team, late=0, moves=False))
    result = await team.deliver()
    assert result.ending is Ending.FAILED
    assert "was not applied within 10m: eu-west-1: Argo CD application llm-eu-west-1 is at" in result.reason
    assert team.versions_in_git() == [CHAMPION, CHAMPION]


async def test_a_way_back_that_git_does_not_take_is_told_and_users_are_back(team: Team) -> None:
    team.when("bake@1", "started", lambda: team.repository.hook("pre-receive", "echo frozen >&2; exit 1"))
    team.when("canary@us-east-1/10", "started", lambda: team.evidence.serves("canary", CHALLENGER, failed=0.5))
    result = await team.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert "; Git may still say version 2: " in result.reason
    assert "frozen" in result.reason
    assert team.stable_versions() == dict.fromkeys(REGIONS, CHAMPION)
    assert team.said("undone") == []
