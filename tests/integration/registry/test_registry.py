"""What every registry promises: the fake that other rooms test with, and MLflow itself."""

import shutil
from pathlib import Path

import pytest
from fakes.services.mlflow_server import STORES
from mlflow import MlflowClient

from registry.conventions import SUMS
from registry.errors import UnfitModel, UnknownAlias, UnknownModel, UnknownSource, UnknownVersion
from registry.files import digest_files, sums_of, whole_digest
from registry.model import EngineRecord, Serving, ServingAliases
from registry.versions import MlflowRegistry
from tidegate.core.errors import UsageError
from tidegate.testing import MemoryStore


@pytest.fixture(params=["memory", "server"])
def registry(request: pytest.FixtureRequest) -> MlflowRegistry:
    if request.param == "memory":
        return MlflowRegistry(MemoryStore())
    return MlflowRegistry(request.getfixturevalue("server"))


def aliases(registry: MlflowRegistry, name: str) -> dict[str, str]:
    return {alias: version.version for version in registry.versions(name) for alias in version.aliases}


def test_a_registered_folder_is_found_by_number_and_alias(registry: MlflowRegistry, name: str, folder: Path) -> None:
    version = registry.register(name, folder, description="the first", alias="champion")

    assert version.uri == f"models:/{name}/1"
    assert version.files == digest_files(folder)
    assert version.digest == whole_digest(version.files)
    assert version.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert version.aliases == ("champion",)
    assert registry.resolve(name, "1") == registry.resolve(name, "champion") == version


def test_a_name_may_have_a_dot(registry: MlflowRegistry, name: str, folder: Path) -> None:
    assert registry.register(f"{name}-3.1", folder, alias="champion").uri == f"models:/{name}-3.1/1"


def test_versions_count_up(registry: MlflowRegistry, name: str, folder: Path) -> None:
    registry.register(name, folder, alias="champion")
    registry.register(name, folder, alias="challenger")

    assert [version.version for version in registry.versions(name)] == ["1", "2"]
    assert aliases(registry, name) == {"champion": "1", "challenger": "2"}


def test_an_unknown_model_is_said_so(registry: MlflowRegistry, name: str) -> None:
    with pytest.raises(UnknownModel, match="no such model"):
        registry.resolve(name, "champion")


def test_an_unknown_version_is_answered_with_those_there_are(registry: MlflowRegistry, name: str, folder: Path) -> None:
    registry.register(name, folder)
    registry.register(name, folder)

    with pytest.raises(UnknownVersion, match=r"/9: no such version; there are 1, 2"):
        registry.resolve(name, "9")


def test_an_unknown_alias_is_said_so(registry: MlflowRegistry, name: str, folder: Path) -> None:
    registry.register(name, folder)

    with pytest.raises(UnknownAlias, match="@champion: no version has this alias"):
        registry.resolve(name, "champion")


def test_promotion_moves_all_three_aliases(registry: MlflowRegistry, name: str, folder: Path) -> None:
    registry.register(name, folder, alias="champion")
    version = registry.register(name, folder, alias="challenger")

    registry.promote(version)

    assert aliases(registry, name) == {"champion": "2", "previous": "1"}


def test_promotion_may_be_repeated(registry: MlflowRegistry, name: str, folder: Path) -> None:
    registry.register(name, folder, alias="champion")
    version = registry.register(name, folder, alias="challenger")

    registry.promote(version)
    registry.promote(version)

    assert aliases(registry, name) == {"champion": "2", "previous": "1"}


@pytest.mark.parametrize("champion", ["1", "2"])
def test_promotion_that_died_in_the_middle_ends_the_same(
    registry: MlflowRegistry, name: str, folder: Path, champion: str
) -> None:
    registry.register(name, folder, alias="champion")
    version = registry.register(name, folder, alias="challenger")
    registry.mark(version, Serving(replaced="1").tag)
    registry.set_alias(name, "champion", champion)

    registry.promote(version)

    assert aliases(registry, name) == {"champion": "2", "previous": "1"}


def test_promotion_leaves_a_newer_challenger_alone(registry: MlflowRegistry, name: str, folder: Path) -> None:
    version = registry.register(name, folder)
    registry.register(name, folder, alias="challenger")

    registry.promote(version)

    assert aliases(registry, name) == {"champion": "1", "challenger": "2"}


def test_going_back_version_by_version_ends_at_the_first(registry: MlflowRegistry, name: str, folder: Path) -> None:
    for _ in range(3):
        registry.promote(registry.register(name, folder, alias="challenger"))
    assert aliases(registry, name) == {"champion": "3", "previous": "2"}

    registry.reinstate(registry.resolve(name, "previous"))
    assert aliases(registry, name) == {"champion": "2", "previous": "1"}
    registry.reinstate(registry.resolve(name, "champion"))
    assert aliases(registry, name) == {"champion": "2", "previous": "1"}
    registry.reinstate(registry.resolve(name, "previous"))
    assert aliases(registry, name) == {"champion": "1"}


def test_after_a_rollback_the_next_champion_took_over_from_the_one_that_serves(
    registry: MlflowRegistry, name: str, folder: Path
) -> None:
    for _ in range(2):
        registry.promote(registry.register(name, folder))
    registry.reinstate(registry.resolve(name, "1"))
    third = registry.register(name, folder, alias="challenger")

    registry.promote(third)

    assert aliases(registry, name) == {"champion": "3", "previous": "1"}
    assert Serving.of(registry.tags(third)).replaced == "1"


def test_a_team_calls_what_serves_as_it_likes(registry: MlflowRegistry, name: str, folder: Path) -> None:
    names = ServingAliases(champion="Production", previous="fallback-eu")
    first = registry.register(name, folder, alias="Production")
    second = registry.register(name, folder, alias="candidate")

    registry.promote(second, names)
    assert aliases(registry, name) == {"Production": "2", "candidate": "2", "fallback-eu": "1"}
    registry.reinstate(first, names)
    assert aliases(registry, name) == {"Production": "1", "candidate": "2"}


def test_no_version_is_champion_and_previous_by_hand_either(registry: MlflowRegistry, name: str, folder: Path) -> None:
    for _ in range(2):
        registry.promote(registry.register(name, folder))

    with pytest.raises(UsageError, match="version 2 is the champion, and cannot be the version before it too"):
        registry.set_alias(name, "previous", "2")
    registry.set_alias(name, "champion", "1")

    assert aliases(registry, name) == {"champion": "1"}


def test_an_alias_points_only_at_what_exists(registry: MlflowRegistry, name: str, folder: Path) -> None:
    registry.register(name, folder)

    with pytest.raises(UnknownVersion):
        registry.set_alias(name, "champion", "7")


def test_a_download_is_the_registered_folder(registry: MlflowRegistry, name: str, folder: Path, tmp_path: Path) -> None:
    version = registry.register(name, folder)

    got = registry.download(version, tmp_path / "engine")

    assert got == tmp_path / "engine" / "model"
    assert digest_files(got) == version.files
    assert [path.name for path in (tmp_path / "engine").iterdir()] == ["model"]


def test_a_download_that_was_damaged_since_is_replaced(
    registry: MlflowRegistry, name: str, folder: Path, tmp_path: Path
) -> None:
    version = registry.register(name, folder)
    got = registry.download(version, tmp_path / "engine")
    (got / "config.json").write_text("{}")
    (got / "extra.json").write_text("{}")

    assert digest_files(registry.download(version, tmp_path / "engine")) == version.files


def test_files_with_pickles_are_not_registered(registry: MlflowRegistry, name: str, folder: Path) -> None:
    shutil.copy(folder / "config.json", folder / "pytorch_model.bin")

    with pytest.raises(UnfitModel, match=r"pytorch_model\.bin"):
        registry.register(name, folder)
    with pytest.raises(UnknownModel):
        registry.versions(name)


def test_marks_are_written(registry: MlflowRegistry, name: str, folder: Path) -> None:
    version = registry.register(name, folder)

    registry.mark(version, {"tidegate.taken-back": "too slow"})
    registry.mark(version, Serving(replaced="1").tag)
    now = EngineRecord(name="1", fingerprint="d" * 64, settings={})
    registry.mark(version, Serving(now=now).tag)

    assert registry.resolve(name, "1") == version
    # What is not given stays.
    assert Serving.of(registry.tags(version)) == Serving(now=now, replaced="1")


@pytest.mark.parametrize("store", STORES)
def test_what_a_run_logged_becomes_a_version_and_stays_where_it_is(
    request: pytest.FixtureRequest, store: str, name: str, folder: Path, tmp_path: Path
) -> None:
    uri = request.getfixturevalue(STORES[store])
    client = MlflowClient(uri, registry_uri=uri)
    place = None if uri.startswith("http") else (tmp_path / "artifacts").as_uri()
    run = client.create_run(client.create_experiment(name, place)).info
    client.log_artifacts(run.run_id, str(folder), "out/weights")
    registry = MlflowRegistry(uri)

    version = registry.register_run(name, run.run_id, "out", progress=lambda *_: None)

    assert (version.version, version.folders) == ("1", ("weights",))
    assert version.files == digest_files(folder)
    found = client.get_model_version(name, "1")
    assert (found.source, found.run_id) == (f"runs:/{run.run_id}/out", run.run_id)
    assert digest_files(registry.download(version, tmp_path / "engine")) == version.files
    sums = Path(client.download_artifacts(run.run_id, f"tidegate/{name}/1/{SUMS}", str(tmp_path)))
    assert sums.read_text() == sums_of(version.files)
    assert registry.source(version).startswith(uri) == (store == "mlflow server")


def test_a_run_without_a_model_makes_no_version(server: str, name: str, folder: Path) -> None:
    client = MlflowClient(server, registry_uri=server)
    run = client.create_run(client.create_experiment(name)).info.run_id
    client.log_artifact(run, str(folder / "config.json"), "half")
    registry = MlflowRegistry(server)

    def register(run: str, path: str) -> None:
        registry.register_run(name, run, path, progress=lambda *_: None)

    with pytest.raises(UnknownSource, match=f"runs:/none/model: there is no such run in {server}"):
        register("none", "model")
    with pytest.raises(UnknownSource, match=f"runs:/{run}/other: no file lies there"):
        register(run, "other")
    with pytest.raises(UnfitModel, match=r"no folder of it has config\.json and \*\.safetensors"):
        register(run, "half")
    with pytest.raises(UnknownModel):
        registry.versions(name)
