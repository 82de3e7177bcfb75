"""What every `Store` promises: the one in memory that other tests stand on, and MLflow however it is reached."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest
from fakes.delivery.store import MemoryStore
from fakes.services import object_stores
from fakes.services.object_stores import AZURE_ACCOUNT, AZURITE, BUCKET, connection_string
from mlflow.entities import Feedback, TraceInfo, TraceLocation, TraceState

from registry.conventions import experiment_name
from registry.errors import RegistryError, StoreRefused, StoreUnreachable
from registry.mlflow import MlflowStore
from registry.mlflow_client import experiment_id
from registry.model import GoldenSet, StoredRun
from registry.ports import Store

STORES = ["memory", "tracking_uri", "server", pytest.param("guarded", marks=pytest.mark.slow(reason="one more server"))]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return MemoryStore() if request.param == "memory" else MlflowStore(request.getfixturevalue(request.param))


Begin = Callable[..., StoredRun]


@pytest.fixture
def begin(store: Store, name: str) -> Begin:
    def run(started: int = 1, **tags: str) -> StoredRun:
        return store.create_run(experiment_name(name), name="r", started=started, tags=tags, params={"p": "1"})

    return run


def now(store: Store, run: StoredRun) -> StoredRun:
    found = store.run(run.id)
    assert found is not None
    return found


def test_a_run_is_read_back_as_it_was_written(store: Store, begin: Begin) -> None:
    run = begin(a="1")
    assert (run.status, run.started, run.ended, run.is_deleted, run.tags["a"]) == ("RUNNING", 1, None, False, "1")
    store.log(run.id, tags={"a": "2", "b": "é" * 4000})
    store.measure(run.id, {"eu/latency.p95": 0.5}, at=7, step=3)
    store.log_inputs(run.id, "", GoldenSet(name="golden.jsonl", digest="d" * 64))
    store.end_run(run.id, "FINISHED", ended=9)
    read = now(store, run)
    assert (read.status, read.ended, read.tags["a"], len(read.tags["b"])) == ("FINISHED", 9, "2", 4000)
    assert read.params["p"] == "1"


@pytest.mark.parametrize("id", ["0" * 32, "none", "../x"])
def test_a_run_that_nobody_made_is_none(store: Store, id: str) -> None:
    assert store.run(id) is None


def test_runs_are_found_newest_first_by_tags_and_status(store: Store, begin: Begin, name: str) -> None:
    assert store.search_runs(experiment_name(name), {}) == []
    first, second, other = begin(1, model="m"), begin(2, model="m"), begin(3, model="n")
    store.end_run(first.id, "FINISHED", ended=4)

    def found(tags: dict[str, str], **asked: object) -> list[str]:
        return [run.id for run in store.search_runs(experiment_name(name), tags, **asked)]  # type: ignore[arg-type]

    assert found({"model": "m"}) == [second.id, first.id]
    assert found({"model": "m"}, status="RUNNING") == [second.id]
    assert found({}, last=1) == [other.id]
    store.delete_run(other.id)
    assert found({}) == [second.id, first.id]
    assert now(store, other).is_deleted


def test_a_run_is_found_by_the_beginning_of_its_id(store: Store, begin: Begin) -> None:
    run = begin()
    assert run.id in [each.id for each in store.runs_like(run.id[:8])]
    assert store.runs_like("f" * 32) == []


def test_of_several_that_claim_at_once_one_has_it_and_all_hear_who(store: Store, begin: Begin) -> None:
    run, racers = begin(), 4
    start = Barrier(racers)

    def race(number: int) -> str:
        start.wait(60)
        return store.claim(run.id, "owner.1", f"process {number}")

    with ThreadPoolExecutor(racers) as pool:
        [one] = set(pool.map(race, range(racers)))
    assert now(store, run).params["owner.1"] == one == store.claim(run.id, "owner.1", "late")
    assert store.claim(run.id, "owner.2", "late") == "late"


def test_a_deleted_run_takes_nothing(store: Store, begin: Begin) -> None:
    run = begin()
    store.delete_run(run.id)
    with pytest.raises(StoreUnreachable):
        store.log(run.id, tags={"a": "1"})


def test_versions_count_up_and_keep_tags_and_aliases(store: Store, name: str) -> None:
    assert (store.aliases(name), store.names_like(name, 9)) == (None, [])
    for number in ("1", "2"):
        files = store.begin_files(experiment_name(name), name, "Llama")
        assert store.add_version(name, files.source, tags={"number": number}) == number
        assert store.address(name, number) == files.address
    store.set_alias(name, "champion", "1")
    store.set_alias(name, "champion", "2")
    store.set_alias(name, "previous", "1")
    store.set_alias(name, "previous", None)
    store.tag_version(name, "1", {"number": "one", "more": "x"})
    assert [each.tags for each in store.versions(name)] == [{"number": "one", "more": "x"}, {"number": "2"}]
    assert (store.aliases(name), store.version(name, "3")) == ({"champion": "2"}, None)
    assert store.names_like(name[3:].upper(), 9) == [name]


ROOTS = {
    "s3": f"s3://{BUCKET}",
    "gcs": f"gs://{BUCKET}",
    "azure": f"wasbs://{BUCKET}@{AZURE_ACCOUNT}.blob.core.windows.net",
}
azure_is_there = pytest.mark.skipif(not AZURITE.exists(), reason="no Azurite; `make test-tools` installs it")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts an object store when it is first asked for, and lets the environment lead there; its address."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:

        def address(kind: str) -> str:
            if kind not in addresses:
                server = getattr(object_stores, kind)(tmp_path_factory.mktemp(kind))
                addresses[kind], settings = stack.enter_context(server)
                for name, value in settings.items():
                    environment.setenv(name, value)
            return addresses[kind]

        yield address


@pytest.fixture(params=[*STORES, "s3", "gcs", pytest.param("azure", marks=azure_is_there)])
def kept(request: pytest.FixtureRequest, name: str) -> tuple[Store, str]:
    """A store, and an address in it that no other test has."""
    if request.param in ROOTS:
        request.getfixturevalue("bucket")(request.param)
        return MlflowStore("sqlite:///none.db"), f"{ROOTS[request.param]}/of-tests/{name}"
    made = MemoryStore() if request.param == "memory" else MlflowStore(request.getfixturevalue(request.param))
    return made, made.create_run(experiment_name(name), name="r", started=1, tags={}, params={}).artifacts


def test_files_are_listed_with_their_sizes_and_read_as_they_were_put(kept: tuple[Store, str], tmp_path: Path) -> None:
    store, address = kept
    assert store.listed(f"{address}/none") == {}
    # More than boto3 asks for at once.
    contents = {"a.json": b"{}", "model/deep er/empty": b"", "model/weights": os.urandom((8 << 20) + 5)}
    for path, content in contents.items():
        (tmp_path / "source").write_bytes(content)
        store.put(address, path, tmp_path / "source")
        # What is put twice is there once.
        store.put(address, path, tmp_path / "source")
    assert dict(store.listed(address)) == {path: len(content) for path, content in contents.items()}
    assert list(store.listed(f"{address}/model")) == ["deep er/empty", "weights"]
    for path, content in contents.items():
        store.fetch(address, path, tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == content


@pytest.mark.parametrize("path", ["none", "model/none"])
def test_a_file_that_is_not_there_is_told_in_one_line(kept: tuple[Store, str], tmp_path: Path, path: str) -> None:
    store, address = kept
    with pytest.raises(StoreUnreachable) as caught:
        store.fetch(address, path, tmp_path / "got")
    assert "\n" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.long
@azure_is_there
def test_a_key_that_azure_refuses_is_in_no_message_and_no_log_line(
    bucket: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = base64.b64encode(b"hunter2" * 9).decode()
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(bucket("azure"), key))
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StoreUnreachable) as caught:
        MlflowStore("sqlite:///none.db").listed(f"{ROOTS['azure']}/of-tests")
    told = f"{caught.value} {caught.value.hint} {caught.value.detail} {caplog.text}"
    assert key not in told and "SharedKey" not in told
    assert "AZURE_STORAGE_CONNECTION_STRING" in str(caught.value.hint)


@pytest.mark.parametrize("path", ["../secret", "report/../../secret", "/etc/passwd", ""])
def test_no_file_outside_of_an_address_is_read(begin: Begin, store: Store, tmp_path: Path, path: str) -> None:
    run = begin()
    (tmp_path / "secret").write_text("secret")
    store.put(run.artifacts, "report/secret", tmp_path / "secret")
    with pytest.raises((RegistryError, StoreRefused)):
        store.fetch(f"{run.artifacts}/report", path, tmp_path / "stolen")
    assert not (tmp_path / "stolen").exists()


def test_assessments_are_those_of_traces_with_all_these_tags(store: Store, name: str) -> None:
    def assess(began: int, said: object, *, called: str = "helpful", **tags: str) -> None:
        if isinstance(store, MemoryStore):
            store.traces.append((name, tags, began, called, began + 10, said))
            return
        at = TraceLocation.from_experiment_id(experiment_id(store.client, name))
        made = TraceInfo(f"tr-{uuid4().hex}", at, request_time=began, state=TraceState.OK, tags=tags)
        traces = store.client._tracing_client  # type: ignore[no-untyped-call]
        given = Feedback(name=called, value=said, create_time_ms=began + 10)  # type: ignore[arg-type]
        traces.log_assessment(traces.start_trace(made).trace_id, given)

    assert store.assessments(name, "helpful", {"version": "2"}, traced=0) is None
    told: list[object] = [True, "yes", 0.25, {"of": "anything"}]
    for began, said in enumerate(told, 1):
        assess(1000 * began, said, version="2", region="eu")
    assess(2000, "no", version="1", region="eu")
    assess(2000, "no", version="2", region="us")
    assess(2000, "no", called="polite", version="2", region="eu")
    wanted = {"version": "2", "region": "eu"}
    expected = [(1000 * began + 10, said) for began, said in enumerate(told, 1)]
    assert sorted(store.assessments(name, "helpful", wanted, traced=0) or ()) == expected
    assert sorted(store.assessments(name, "helpful", wanted, traced=3000) or ()) == expected[2:]
    assert store.assessments(name, "helpful", {"version": "3"}, traced=0) == []
