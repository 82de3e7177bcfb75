"""A SQLite file that is read without MLflow's library: its answers are the library's, and reading makes nothing."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.store.db.utils import _get_latest_schema_revision

from registry.adapters.local_artifacts import copy_file, list_files
from registry.adapters.mlflow_file import FileStore, is_read_here
from registry.adapters.mlflow_library import SQLITE, LibraryStore
from registry.adapters.mlflow_sqlite import REVISIONS, NotReadHere, read
from registry.adapters.mlflow_store import embedded_uri, open_store
from registry.errors import StoreUnreachable
from registry.model import StoredRun

pytestmark = pytest.mark.long

NAMES = ("m", "M", "it is % named_so", "é")
TAGS = ("tidegate.model", "tidegate.step", "a b")
VALUES = ("m", "M", "", "1%", "ü\n2", "a'b")
STATUSES = ("RUNNING", "FINISHED", "KILLED")


@pytest.fixture(scope="module")
def by_library(tracking_uri: str) -> LibraryStore:
    store = LibraryStore(tracking_uri)
    store.names_like("", 1)
    return store


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when MLflow's library is asked."""
    for question in ("run", "search_runs", "files", "download", "names_like", "model", "versions"):
        monkeypatch.setattr(LibraryStore, question, lambda *_, question=question, **__: pytest.fail(question))


@pytest.fixture
def copied(by_library: LibraryStore, state: Path, tmp_path: Path) -> Path:
    """The file of a store of its own, with nothing in it that a test relies on."""
    return Path(shutil.copy2(state / "mlflow.db", tmp_path))


def store_of(path: Path) -> FileStore:
    return FileStore(f"{SQLITE}{path}")


Write = Callable[[MlflowClient, str], object]
numbers = st.integers(0, 3)


@st.composite
def a_write(draw: st.DrawFn) -> Write:
    """Something that people and tidegate do to a store; names get an ending that is the store's own."""
    name, tag, value = (draw(st.sampled_from(of)) for of in (NAMES, TAGS, VALUES))
    number, started = draw(numbers), draw(st.integers(0, 3))
    status = draw(st.sampled_from(STATUSES))

    def runs(client: MlflowClient, end: str) -> list[Any]:
        found = client.get_experiment_by_name(name + end)
        return list(client.search_runs([found.experiment_id], run_view_type=ViewType.ALL)) if found else []

    def run(client: MlflowClient, end: str, act: Callable[[str], object]) -> None:
        found = runs(client, end)
        if found:
            act(found[number % len(found)].info.run_id)

    def begin(client: MlflowClient, end: str) -> None:
        found = client.get_experiment_by_name(name + end)
        place = found.experiment_id if found else client.create_experiment(name + end)
        client.create_run(place, start_time=started, tags={tag: value})

    def version(client: MlflowClient, end: str) -> None:
        if name + end not in {model.name for model in client.search_registered_models(max_results=1000)}:
            client.create_registered_model(name + end)
        client.create_model_version(name + end, f"file:///{number}", run_id="0", tags={tag: value or "empty"})

    return draw(
        st.sampled_from(
            [
                begin,
                begin,
                version,
                version,
                lambda client, end: run(client, end, lambda id: client.set_tag(id, tag, value)),
                lambda client, end: run(client, end, lambda id: client.log_metric(id, "x", number)),
                lambda client, end: run(client, end, lambda id: client.set_terminated(id, status, end_time=started)),
                lambda client, end: run(client, end, client.delete_run),
                lambda client, end: run(client, end, client.restore_run),
                lambda client, end: client.delete_experiment(client.get_experiment_by_name(name + end).experiment_id),
                lambda client, end: client.restore_experiment(client.get_experiment_by_name(name + end).experiment_id),
                lambda client, end: client.set_registered_model_alias(name + end, "champion", str(number)),
                lambda client, end: client.delete_registered_model_alias(name + end, "champion"),
                lambda client, end: client.set_model_version_tag(name + end, str(number), tag, value),
                lambda client, end: client.delete_model_version(name + end, str(number)),
                lambda client, end: client.delete_registered_model(name + end),
                lambda client, end: client.set_model_version_tag(
                    name + end, str(number), "mlflow.prompt.is_prompt", "true"
                ),
                lambda client, end: client.set_registered_model_tag(name + end, "mlflow.prompt.is_prompt", "true"),
            ]
        )
    )


def address_of(store: LibraryStore, name: str, version: str) -> str:
    try:
        return store.address(name, version)
    except StoreUnreachable:
        # As of a prompt's.
        return "none"


def said(store: LibraryStore, end: str) -> Iterator[object]:
    """Every answer that a store gives of these names."""
    yield [store.names_like(part, most) for part in (end, f"m{end}", f"no{end}") for most in (1, 10)]
    for name in (each + end for each in NAMES):
        yield store.model(name)
        yield store.versions(name)
        for number in ("0", "1", "2", "01"):
            version = store.version(name, number)
            yield version, version and address_of(store, name, number)
        for last in (None, 0, 1, 3):
            yield store.search_runs(name, {}, last=last)
        found = [*store.search_runs(name, {}, status="RUNNING"), *store.search_runs(name, {TAGS[0]: "m", TAGS[1]: "M"})]
        yield found
        yield [store.search_runs(name, {tag: "m"}, status="FINISHED") for tag in TAGS]
        yield [store.run(run.id) for run in found]


@settings(max_examples=3, deadline=None)
@given(writes=st.lists(a_write(), min_size=8, max_size=25))
def test_it_answers_as_the_library_does(by_library: LibraryStore, tracking_uri: str, writes: list[Write]) -> None:
    from mlflow.exceptions import MlflowException

    end, client = uuid4().hex[:8], MlflowClient(tracking_uri, registry_uri=tracking_uri)
    for write in writes:
        try:
            write(client, end)
        except (MlflowException, AttributeError):
            # What is not there cannot be changed.
            continue
    with pytest.MonkeyPatch.context() as patched:
        expected = list(said(by_library, end))
        patched.setattr(LibraryStore, "_client", property(lambda _: pytest.fail("the library was asked")))
        assert list(said(FileStore(tracking_uri), end)) == expected


def test_what_was_written_is_read_at_once(by_library: LibraryStore, tracking_uri: str, name: str) -> None:
    store = FileStore(tracking_uri)
    run = store.create_run(name, name="r", started=1, tags={"a": "1"}, params={})
    store.log(run.id, tags={"a": "2", "b": "3"})

    found = store.run(run.id)
    assert found is not None
    assert found.tags.items() >= {"a": "2", "b": "3"}.items()
    assert [each.id for each in store.search_runs(name, {"a": "2"})] == [run.id]
    store.delete_run(run.id)
    assert store.search_runs(name, {}) == []


def test_deleted_run_is_still_known_by_its_id(by_library: LibraryStore, tracking_uri: str, name: str) -> None:
    store = FileStore(tracking_uri)
    run = store.create_run(name, name="r", started=1, tags={}, params={})
    store.delete_run(run.id)
    assert store.run(run.id) == by_library.run(run.id) != None  # noqa: E711
    assert store.run("nothing") is store.run("..") is by_library.run("nothing") is None


def test_artifacts_are_listed_and_copied_as_by_the_library(
    by_library: LibraryStore, tracking_uri: str, name: str, tmp_path: Path, never: None
) -> None:
    store, client = FileStore(tracking_uri), MlflowClient(tracking_uri, registry_uri=tracking_uri)
    run = store.create_run(name, name="r", started=1, tags={}, params={})
    for folder, file in (("", "b.txt"), ("report/more", "a b%20.txt"), ("report", "z.txt")):
        (tmp_path / file).write_text(f"{folder}/{file}")
        store.upload(run, tmp_path / file, folder)

    assert list(store.files(run, "")) == ["b.txt", "report/more/a b%20.txt", "report/z.txt"]
    assert list(store.files(run, "report")) == ["report/more/a b%20.txt", "report/z.txt"]
    assert [each.path for each in client.list_artifacts(run.id, "report")] == ["report/more", "report/z.txt"]
    assert store.files(run, "nowhere") == {}
    store.download(run, "report/z.txt", tmp_path / "fetched")
    assert (tmp_path / "fetched").read_text() == "report/z.txt"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a b%20.txt", "b.txt", "fetched", "z.txt"]


@pytest.mark.parametrize("folder", ["..", "report/../..", "/etc"])
def test_no_artifact_is_read_outside_of_its_run(
    by_library: LibraryStore, tracking_uri: str, name: str, tmp_path: Path, folder: str
) -> None:
    store = FileStore(tracking_uri)
    run = store.create_run(name, name="r", started=1, tags={}, params={})
    (tmp_path / "passwd").write_text("secret")
    store.upload(run, tmp_path / "passwd", "report")

    def refused(asked: Callable[[], object]) -> bool:
        try:
            return asked() == []
        except StoreUnreachable:
            return True

    assert refused(lambda: store.files(run, folder))
    assert refused(lambda: store.download(run, f"{folder}/passwd", tmp_path / "stolen") or [])
    assert not (tmp_path / "stolen").exists()


def test_where_a_link_leads_is_left_to_the_library(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    for asked in (list_files, lambda root, path: copy_file(root, f"{path}/x", tmp_path / "stolen")):
        for folder in ("", "link"):
            with pytest.raises(NotReadHere):
                asked(f"{tmp_path}/run", folder)


def test_reading_makes_nothing(tmp_path: Path, never: None) -> None:
    store = open_store(embedded_uri(tmp_path / "state"))
    run = StoredRun(id="r", status="RUNNING", started=0, ended=None, artifacts=f"file://{tmp_path}/none", tags={})

    assert (store.runs.run("r"), store.runs.search_runs("tidegate/m", {}), store.artifacts.files(run, "")) == (
        None,
        [],
        {},
    )
    assert (store.models.model("m"), store.models.versions("m"), store.models.names_like("", 9)) == (None, [], [])
    assert store.models.version("m", "1") is None
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_a_store_without_entries(tmp_path: Path, never: None) -> None:
    (tmp_path / "mlflow.db").touch()
    assert open_store(embedded_uri(tmp_path)).models.names_like("", 1000) == []


def test_the_installed_mlflow_writes_a_schema_that_is_read_here() -> None:
    assert _get_latest_schema_revision() in REVISIONS


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE alembic_version SET version_num = 'ffffffffffff'",
        "DROP TABLE alembic_version",
        "UPDATE experiments SET workspace = 'team'",
    ],
)
def test_another_schema_is_left_to_the_library(copied: Path, change: str) -> None:
    with closing(sqlite3.connect(copied)) as opened:
        opened.executescript(change)
    with pytest.raises(NotReadHere):
        read(copied, lambda tables: tables.names_like("", 1000))


@pytest.mark.parametrize(
    "uri",
    ["sqlite:///:memory:", "sqlite://", "sqlite:///a.db?mode=ro", "sqlite:///a%20b.db", "postgresql://db/mlflow"],
)
def test_other_addresses_are_left_to_the_library(uri: str) -> None:
    assert not is_read_here(uri, {})
    assert is_read_here("sqlite:////a/b c.db", {})
    assert not is_read_here("sqlite:////a/b c.db", {"MLFLOW_ENABLE_WORKSPACES": "true"})


def test_readers_and_a_writer_do_not_wait_for_each_other(copied: Path, never: None) -> None:
    with closing(sqlite3.connect(copied, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO registered_models (name, workspace) VALUES ('new', 'default')")
        before = time.monotonic()
        assert "new" not in store_of(copied).names_like("", 1000)
        assert time.monotonic() - before < 5
        writer.execute("COMMIT")
    assert "new" in store_of(copied).names_like("", 1000)


def test_a_file_that_stays_locked_is_said_in_one_line(
    copied: Path, never: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.adapters.mlflow_sqlite.PATIENCE_SECONDS", 0.1)
    with closing(sqlite3.connect(copied, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnreachable, match=f"MLflow store sqlite:///{copied}: database is locked"):
            store_of(copied).names_like("", 1000)


def test_a_log_that_is_written_ahead_is_read(copied: Path, never: None) -> None:
    with closing(sqlite3.connect(copied, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO registered_models (name, workspace) VALUES ('new', 'default')")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO registered_models (name, workspace) VALUES ('newer', 'default')")
        assert {"new", "newer"} & {*store_of(copied).names_like("", 1000)} == {"new"}
    assert "new" in store_of(copied).names_like("", 1000)


def test_what_a_killed_writer_left_half_done_is_taken_back_by_the_library(copied: Path) -> None:
    """It is written into the file before it is known to hold; what the file was is in the journal."""
    killed = """
import os, sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None)
writer.execute("PRAGMA cache_size = 1")
writer.execute("PRAGMA cache_spill = 1")
rows = [(f"x{n}" * 40,) for n in range(999)]
writer.execute("BEGIN IMMEDIATE")
writer.executemany("INSERT INTO registered_models (name, workspace) VALUES (?, 'default')", rows)
os._exit(9)
"""
    before = store_of(copied).names_like("", 1000)
    subprocess.run([sys.executable, "-c", killed, str(copied)], check=False)
    assert copied.with_name(f"{copied.name}-journal").stat().st_size > 0
    with pytest.raises(NotReadHere):
        read(copied, lambda tables: tables.names_like("", 1000))
    assert store_of(copied).names_like("", 1000) == before


def test_a_file_that_is_no_database_is_said_in_one_line(tmp_path: Path, never: None) -> None:
    (tmp_path / "mlflow.db").write_text("kind: Delivery\n" * 100)
    with pytest.raises(StoreUnreachable, match=f"^MLflow store sqlite:///{tmp_path}/mlflow.db: file is not a database"):
        store_of(tmp_path / "mlflow.db").names_like("", 1000)
    with pytest.raises(StoreUnreachable, match="Is a directory"):
        store_of(tmp_path).names_like("", 1000)
