"""A Databricks workspace and its Unity Catalog, played by a server of ours: MLflow's own client asks it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.services.databricks import CLIENT_ID, CLIENT_SECRET, MOST_RUN_TAG_BYTES, TOKEN, Workspace, databricks

from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_models import MlflowRegistry
from registry.conventions import NOTE
from registry.errors import NotAdopted, StoreUnreachable, UnknownModel
from registry.model import Event
from registry.model_files import digest_files
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError

pytestmark = pytest.mark.long

NAME = "main.llm.support"


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workspace]:
    """The one who asks has its token."""
    with databricks() as (url, kept):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("DATABRICKS_HOST", url)
        monkeypatch.setenv("DATABRICKS_TOKEN", TOKEN)
        # What is set while it is used is taken away with it.
        monkeypatch.setenv("DATABRICKS_CONFIG_PROFILE", "")
        monkeypatch.delenv("DATABRICKS_CONFIG_PROFILE")
        monkeypatch.setenv("MLFLOW_DATABRICKS_ENDPOINT_HTTP_RETRY_TIMEOUT", "2")
        yield kept


@pytest.fixture
def registry(workspace: Workspace) -> MlflowRegistry:
    return MlflowRegistry("databricks")


def test_a_folder_becomes_a_version_whose_files_are_proven(
    registry: MlflowRegistry, workspace: Workspace, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (current := tmp_path / "current").mkdir()
    monkeypatch.chdir(current)
    version = registry.register(NAME, folder, alias="challenger")

    assert registry.resolve(NAME, "challenger") == version
    assert version.files == digest_files(folder)
    assert workspace.versions[NAME, "1"]["status"] == "READY"
    assert registry.location(version) == f"models:/{NAME}/1"
    assert digest_files(registry.download(version, tmp_path / "target")) == version.files
    assert list(current.iterdir()) == []


def test_a_version_of_somebody_else_is_adopted_where_it_lies(
    registry: MlflowRegistry, workspace: Workspace, folder: Path
) -> None:
    registry.register(NAME, folder)
    workspace.versions[NAME, "1"]["tags"] = [{"key": "owner", "value": "ann"}]
    files = dict(workspace.files)
    with pytest.raises(NotAdopted):
        registry.resolve(NAME, "1")

    version = registry.adopt(NAME, "1")

    assert version.files == digest_files(folder)
    assert registry.tags(version)["owner"] == "ann"
    assert workspace.files == files


def test_promotion_and_the_way_back_move_aliases_and_write_why(
    registry: MlflowRegistry, workspace: Workspace, folder: Path
) -> None:
    first = registry.register(NAME, folder, alias="champion")
    second = registry.register(NAME, folder, alias="challenger")

    registry.promote(second)
    assert workspace.models[NAME] == {"champion": "2", "previous": "1"}
    registry.mark(second, {"tidegate.outcome": "rolled_back", "tidegate.reason": "slower " * 300})
    registry.mark(second, {"tidegate.reason": "short"})
    registry.reinstate(first)

    assert workspace.models[NAME] == {"champion": "1"}
    tags = registry.tags(second)
    assert (tags["tidegate.outcome"], tags["tidegate.reason"], tags["tidegate.replaced"]) == (
        "rolled_back",
        "short",
        "1",
    )
    assert [version.digest for version in registry.versions(NAME)] == [first.digest, second.digest]


def test_a_delivery_is_a_run_of_an_experiment_in_the_folder_that_was_named(
    registry: MlflowRegistry, workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_DATABRICKS_FOLDER", "/Users/robot/tidegate/")
    version = registry.register(NAME, folder, alias="challenger")
    deliveries = MlflowDeliveries("databricks")

    ledger = deliveries.open_delivery(version, None, spec_digest="s")
    (folder / "spec.yaml").write_text("kind: Delivery")
    ledger.attach(folder / "spec.yaml", folder="files")
    for number in range(45):
        ledger.append(Event(at=SystemClock().now(), step="build", kind="done", message=f"{number} " + "é" * 60))

    assert list(workspace.experiments) == [f"/Users/robot/tidegate/{NAME}"]
    assert [each.id for each in MlflowDeliveries("databricks").deliveries(NAME)] == [ledger.delivery]
    kept = MlflowDeliveries("databricks").fetch(ledger.delivery, "files", folder / "again")
    assert [path.read_text() for path in kept] == ["kind: Delivery"]
    story = {tag["key"]: tag["value"] for tag in workspace.runs[ledger.delivery]["data"]["tags"]}[NOTE]
    assert "44 " in story
    assert len(story.encode()) <= MOST_RUN_TAG_BYTES


def test_names_have_three_levels(registry: MlflowRegistry, folder: Path) -> None:
    with pytest.raises(UsageError, match=r"`support` is no name .*; write CATALOG\.SCHEMA\.MODEL"):
        registry.resolve("support", "champion")
    registry.register(NAME, folder)
    with pytest.raises(UnknownModel, match=rf"no such model in databricks-uc, which has {re.escape(NAME)}"):
        registry.resolve("main.llm.other", "champion")


def test_a_robot_logs_in_by_its_secret(
    registry: MlflowRegistry, workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABRICKS_TOKEN")
    monkeypatch.setenv("DATABRICKS_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("DATABRICKS_CLIENT_SECRET", CLIENT_SECRET)
    assert registry.register(NAME, folder).version == "1"
    assert "POST /oidc/v1/token" in workspace.asked


def test_a_profile_of_the_file_is_taken_by_name(
    workspace: Workspace, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = os.environ["DATABRICKS_HOST"]
    (tmp_path / ".databrickscfg").write_text(f"[prod]\nhost = {host}\ntoken = {TOKEN}\n")
    monkeypatch.delenv("DATABRICKS_HOST")
    monkeypatch.delenv("DATABRICKS_TOKEN")
    assert MlflowRegistry("databricks://prod").register(NAME, folder).version == "1"


def test_one_who_may_not_ask_is_told_what_to_set_and_nothing_secret(
    registry: MlflowRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-wr0ng")
    with pytest.raises(StoreUnreachable, match=r"Invalid access token.*; check DATABRICKS_HOST with") as refused:
        registry.versions(NAME)
    assert "wr0ng" not in f"{refused.value}{refused.value.detail}"
