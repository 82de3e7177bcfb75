"""A SQLite file that is written without MLflow's library: the library would have left the same, to the last row."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from registry.adapters.mlflow_library import SQLITE, LibraryStore
from registry.adapters.mlflow_models import MlflowRegistry
from registry.adapters.mlflow_sqlite_writes import PENDING
from registry.adapters.mlflow_store import open_store
from registry.adapters.registering.library import LibraryVersions
from registry.conventions import experiment_name
from registry.errors import RegistryError, StoreUnreachable
from registry.model import Alias

pytestmark = pytest.mark.long

IDS = re.compile(r"m-[0-9a-f]{32}")


@pytest.fixture
def copy_of(state: Path, tracking_uri: str, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a store of its own, in a folder of that name."""
    LibraryStore(tracking_uri).names_like("", 1)

    def copied(name: str) -> Path:
        (tmp_path / name).mkdir()
        return Path(shutil.copy2(state / "mlflow.db", tmp_path / name))

    return copied


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when MLflow's library is asked."""
    for way in (LibraryStore, LibraryVersions):
        monkeypatch.setattr(way, "_client", property(lambda _: pytest.fail("the library was asked")))


def written(uri: str, name: str, folder: Path) -> None:
    """All that is written there without the library."""
    registry, store = MlflowRegistry(uri), open_store(uri)
    registry.register(name, folder, description="the first", alias=Alias.CHAMPION)
    registry.register(name, folder, alias=Alias.CHALLENGER)
    registry.set_alias(name, Alias.CHAMPION, "2")
    registry.set_alias(name, Alias.PREVIOUS, "1")
    store.models.set_alias(name, Alias.CHALLENGER, None)
    store.models.set_alias(name, Alias.CHALLENGER, None)


def rows_of(path: Path) -> dict[str, list[str]]:
    """Every row of every table; ids, times and the file's own folder aside."""
    with closing(sqlite3.connect(path)) as opened:
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {table: opened.execute(f'SELECT * FROM "{table}"').fetchall() for table in tables}

    def same(value: object) -> str:
        now = isinstance(value, int) and value > 10**12
        return "at" if now else IDS.sub("ID", repr(value)).replace(str(path.parent), "HERE")

    return {table: sorted(str([same(value) for value in row]) for row in rows) for table, rows in found.items()}


def test_it_is_left_as_the_library_leaves_it(
    copy_of: Callable[[str], Path], name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, by_library = copy_of("here"), copy_of("library")
    written(f"{SQLITE}{by_library}?timeout=20", name, folder)
    for way in (LibraryStore, LibraryVersions):
        monkeypatch.setattr(way, "_client", property(lambda _: pytest.fail("the library was asked")))
    written(f"{SQLITE}{here}", name, folder)

    assert rows_of(here) == rows_of(by_library)
    assert len(rows_of(here)["model_version_tags"]) - len(rows_of(here)["model_versions"]) > 10
    ours, theirs = (
        [
            (IDS.sub("ID", path.relative_to(store.parent).as_posix()), path.stat().st_mode, path.stat().st_size)
            for path in sorted((store.parent / "artifacts").rglob("*"))
            if path.name != "MLmodel"
        ]
        for store in (here, by_library)
    )
    assert sorted(ours) == sorted(theirs)


def test_a_version_is_made_whole_or_not_at_all(
    copy_of: Callable[[str], Path], name: str, folder: Path, never: None
) -> None:
    path = copy_of("here")
    with closing(sqlite3.connect(path)) as opened:
        refuses = "CREATE TRIGGER no BEFORE INSERT ON model_version_tags BEGIN SELECT raise(ABORT, 'disk full'); END"
        opened.executescript(refuses)
    before = rows_of(path)
    with pytest.raises(StoreUnreachable, match="disk full"):
        MlflowRegistry(f"{SQLITE}{path}").register(name, folder)
    after = rows_of(path)
    changed = {table for table, rows in after.items() if rows != before[table]}
    assert changed == {"experiments", "logged_models"}
    with closing(sqlite3.connect(path)) as opened:
        logged = opened.execute("SELECT status FROM logged_models WHERE name = ?", (name,)).fetchall()
    assert logged == [(PENDING,)]


def test_a_file_that_stays_locked_is_said_in_one_line(
    copy_of: Callable[[str], Path], name: str, folder: Path, never: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_of("here")
    monkeypatch.setattr("registry.adapters.mlflow_sqlite_writes.PATIENCE_SECONDS", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnreachable, match=f"MLflow store sqlite:///{path}: database is locked"):
            MlflowRegistry(f"{SQLITE}{path}").register(name, folder)


def test_a_deleted_experiment_is_said_so(copy_of: Callable[[str], Path], name: str, folder: Path, never: None) -> None:
    path = copy_of("here")
    registry = MlflowRegistry(f"{SQLITE}{path}")
    registry.register(name, folder)
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("UPDATE experiments SET lifecycle_stage = 'deleted' WHERE name = ?", (experiment_name(name),))
        opened.commit()
    with pytest.raises(RegistryError, match=f"experiment tidegate/{name} is deleted; restore it"):
        registry.register(name, folder)


class Asked(Exception):
    """MLflow's library, for this step."""


PROMPT = """
INSERT INTO registered_models (name, workspace) VALUES ('m', 'default');
INSERT INTO registered_model_tags (name, key, value, workspace)
VALUES ('m', 'mlflow.prompt.is_prompt', 'true', 'default')
"""


@pytest.mark.parametrize(
    ("change", "name", "step"),
    [
        ("UPDATE alembic_version SET version_num = 'ffffffffffff'", "m", "begin"),
        ("UPDATE experiments SET workspace = 'team'", "m", "begin"),
        ("DROP TABLE logged_models", "m", "begin"),
        ("", "mé", "begin"),
        (PROMPT, "m", "finish"),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_library(
    copy_of: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch, *, change: str, name: str, step: str
) -> None:
    def asked(step: str) -> Callable[..., NoReturn]:
        def ask(*_: object) -> NoReturn:
            raise Asked(step)

        return ask

    for each in ("begin", "finish"):
        monkeypatch.setattr(LibraryVersions, each, asked(each))
    path = copy_of("here")
    with closing(sqlite3.connect(path)) as opened:
        opened.executescript(change)
    before = rows_of(path)
    with pytest.raises(Asked, match=step):
        MlflowRegistry(f"{SQLITE}{path}").register(name, folder)
    assert {table for table, rows in rows_of(path).items() if rows != before[table]} <= {"experiments", "logged_models"}
