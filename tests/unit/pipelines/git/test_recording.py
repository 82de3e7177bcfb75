"""What is delivered is written to a real repository, once, whatever happens meanwhile; and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.region import a_fleet
from fakes.delivery.world import CHALLENGER, CHAMPION, Steps, World
from fakes.services.git_repository import TeamRepository

from pipelines.model import Ending
from pipelines.repository import GitRemote
from pipelines.run.git import git_files
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitSpec
from tidegate.core.clock import SystemClock
from tidegate.core.spec import parse_spec

REGIONS = ("eu-west-1", "us-east-1")
SERVED = {"path": "apps/{region}/served.yaml", "content": '# {region}\nengine: {version: "{version}"}\n'}


def path(region: str) -> str:
    return f"apps/{region}/served.yaml"


class Team(World):
    """A delivery whose team has its regions in Git."""

    def __init__(self, folder: Path, **said: Any) -> None:
        super().__init__(folder)
        self.repository = TeamRepository(folder, {path(REGIONS[0]): "before\n"})
        git = GitSpec.model_validate({"repository": self.repository.url, "files": [SERVED], **said})
        self.spec = self.spec.model_copy(update={"git": git})
        self.git = GitRemote(git, SystemClock())

    def in_git(self) -> list[str]:
        return [self.repository.text(path(each)) for each in REGIONS]


def served(version: str) -> list[str]:
    return [f'# {region}\nengine: {{version: "{version}"}}\n' for region in REGIONS]


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


async def test_a_delivery_is_one_commit_behind_its_last_step(team: Team) -> None:
    first = team.repository.commits()
    team.when("finalize", "done", lambda: None if team.repository.commits() == first else pytest.fail("too early"))
    result = await team.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    assert (team.in_git(), team.repository.commits()[1:]) == (served(CHALLENGER), first)
    assert team.repository.message().splitlines() == [
        "tidegate <tidegate@localhost>",
        "support-llm 2 serves eu-west-1, us-east-1",
        "",
        "Tidegate-Delivery: 1",
        "Tidegate-Version: models:/support-llm/2",
        "Tidegate-Previous: 1",
        "",
    ]


async def test_a_version_that_is_rolled_back_was_never_in_git(team: Team) -> None:
    team.when("canary@us-east-1/10", "started", lambda: team.evidence.serves("canary", CHALLENGER, failed=0.5))
    result = await team.deliver()
    assert (result.ending, len(team.repository.commits())) == (Ending.ROLLED_BACK, 1)


@pytest.mark.long
async def test_one_who_pushes_at_the_same_time_is_no_obstacle(team: Team) -> None:
    assert team.git is not None
    push = team.git._push

    def late(arguments: list[str]) -> None:
        if "README.md" not in team.repository._at("ls-tree", "main"):
            team.repository.person_writes({"README.md": "hello\n"}, "a faster person")
        push(arguments)

    team.git._push = late  # type: ignore[method-assign,assignment]
    await team.deliver()
    assert (team.in_git(), team.repository.text("README.md")) == (served(CHALLENGER), "hello\n")
    assert any("somebody else has pushed meanwhile" in each.message for each in team.recorder.events)


@pytest.mark.long
async def test_a_process_that_died_after_its_push_writes_nothing_twice(tmp_path: Path) -> None:
    team = Team(tmp_path)
    (tmp_path / "disks").mkdir()
    steps = Steps(team, tmp_path / "disks")
    await steps.until("finalize")
    assert team.git is not None
    team.git.write(dict(zip(map(path, REGIONS), served(CHALLENGER), strict=True)), "as one that died\n")
    result = await steps.close()
    assert (result.ending, len(team.repository.commits())) == (Ending.DELIVERED, 2)


@pytest.mark.parametrize("what", ["protected", "gone"])
async def test_what_git_does_not_take_is_told_and_users_stay(team: Team, what: str) -> None:
    if what == "protected":
        team.repository.hook("pre-receive", "echo 'GL-HOOK-ERR: main is protected' >&2; exit 1")
    else:
        team.repository.bare.rename(team.repository.bare.with_name("away.git"))
    result = await team.deliver()
    words = "GL-HOOK-ERR: main is protected" if what == "protected" else "does not appear to be a git repository"
    assert result.ending is Ending.DELIVERED
    assert "; Git does not say version 2 yet: " in result.reason
    assert words in result.reason
    assert "`tidegate rollback --to 2` writes it" in result.reason
    assert team.stable_versions() == dict.fromkeys(REGIONS, CHALLENGER)
    assert CHAMPION not in team.stable_versions().values()


def spec_with(*files: object) -> Delivery:
    said = {
        "apiVersion": "tidegate/v1",
        "kind": "Delivery",
        "metadata": {"name": "support-llm"},
        "model": {"name": "support-llm"},
        "engine": {"vllm": {"version": "0.32.0"}},
        "gates": {"errors": {}},
        "stages": [{"canary": {"gates": ["errors"]}}],
        "regions": {"waves": [[REGIONS[0]], [REGIONS[1]]]},
        "fleet": a_fleet(*REGIONS).model_dump(mode="json", exclude_unset=True),
        "git": {"repository": "https://git.example/team/serving.git", "files": files},
    }
    return parse_spec(yaml.safe_dump(said), Delivery, file="d.yaml")


def test_files_say_what_is_served_and_one_of_all_regions_only_what_all_serve() -> None:
    texts = {"one": "{repository} {digest} {version} {engine} {model} {delivery}", "all": "{image} {unknown-to-us}"}
    spec = spec_with({"path": "{region}.yaml", "content": texts["one"]}, {"path": "all.yaml", "content": texts["all"]})
    image = "registry.example:5000/llm:v2@sha256:ab"
    one = "registry.example:5000/llm sha256:ab 7 7-cd support-llm support-llm"
    found = git_files(spec, REGIONS, engine="7-cd", image=image)
    assert found == {f"{each}.yaml": one for each in REGIONS} | {"all.yaml": f"{image} {{unknown-to-us}}"}
    untagged = git_files(spec, REGIONS[:1], engine="7", image="registry.example:5000/llm@sha256:ab")
    assert untagged == {"eu-west-1.yaml": "registry.example:5000/llm sha256:ab 7 7 support-llm support-llm"}
