"""What answers in MLflow's place, or answers oddly: one line that says so, and exit 4, whatever is asked."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event

import httpx
import pytest
from fakes.clock import FakeClock
from fakes.services.scripted_mlflow import ScriptedMlflow

from pipelines.events.spool import passes
from registry.adapters.mlflow_address import MlflowAccess
from registry.adapters.mlflow_calls import MOST_PAGES, all_pages, bounded
from registry.adapters.mlflow_http import MOST_BYTES, MlflowServer
from registry.adapters.mlflow_rest import MOST_FILES, RestModels, RestRuns, files_below
from registry.errors import RegistryError, StoreUnreachable
from registry.ports import ModelStore, RunStore
from tidegate.core.errors import ExitCode, TidegateError

URI = "http://mlflow:5000"
DEEP = b"[" * 100_000
INFO = {"run_id": "a", "status": "RUNNING", "start_time": 1, "artifact_uri": "mlflow-artifacts:/1"}
EXPERIMENT: Mapping[str, object] = {"experiment_id": "7", "lifecycle_stage": "active"}
BODIES: tuple[object, ...] = (
    {},
    [],
    "text",
    None,
    {"run": None},
    {"run": {"info": INFO | {"run_id": 7}}},
    {"run": {"info": INFO | {"start_time": "yesterday"}}},
    {"run": {"info": INFO, "data": {"tags": [{"value": "no key"}]}}},
    {"run": {"info": INFO, "data": []}},
    {"experiment": "x"},
    {"experiment": EXPERIMENT, "runs": None},
    {"experiment": EXPERIMENT, "runs": [7]},
    {"experiment": EXPERIMENT, "runs": {"a": 1}},
    {"experiment": EXPERIMENT, "next_page_token": "again"},
    {"experiment": EXPERIMENT, "next_page_token": ["again"]},
    {"registered_model": {"aliases": None}},
    {"registered_model": []},
    {"model_version": {"name": "m"}},
    {"model_versions": None},
    {"model_versions": [{"name": "m", "version": "one"}]},
    {"model_versions": [], "next_page_token": "again"},
    {"artifact_uri": {}},
    httpx.Response(200, content=DEEP),
    httpx.Response(200, content=b'{"run": {"info": {"start_time": 1e999}}}'),
    httpx.Response(200, content=b"\xff\xfe{}"),
    httpx.Response(404, content=DEEP),
    httpx.Response(404, json=["no"]),
)
ASKED: tuple[Callable[[RunStore, ModelStore], object], ...] = (
    lambda runs, _: runs.run("a"),
    lambda runs, _: runs.search_runs("tidegate/m", {}),
    lambda runs, _: runs.create_run("tidegate/m", name="n", started=0, tags={}, params={}),
    lambda _, models: models.model("m"),
    lambda _, models: models.version("m", "1"),
    lambda _, models: models.versions("m"),
    lambda _, models: models.address("m", "1"),
)


def response(body: object) -> httpx.Response:
    return body if isinstance(body, httpx.Response) else httpx.Response(200, json=body)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body)[:40])
def test_whatever_is_asked_it_is_an_error_of_the_store(body: object) -> None:
    for question in ASKED:
        server = ScriptedMlflow(response(body)).server
        try:
            question(bounded(RestRuns(server), URI), bounded(RestModels(server), URI))
        except TidegateError as error:
            assert error.exit_code is ExitCode.OUTSIDE
            assert len(str(error)) < 500
            assert "\n" not in str(error)


def test_a_body_in_broken_gzip_is_one_too_and_may_pass() -> None:
    """In the middle of a delivery: the writer keeps the event and tries again."""
    broken = httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Parts(b"no gzip"))
    with pytest.raises(StoreUnreachable, match="its answer cannot be read: DecodingError") as caught:
        bounded(RestRuns(ScriptedMlflow(broken).server), URI).log("a", tags={"b": "c"})
    assert passes(caught.value)


def test_a_file_of_this_machine_is_no_fault_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        bounded(ScriptedMlflow(httpx.Response(200)).server, URI).upload("/x", tmp_path / "none")


class Parts(httpx.SyncByteStream):
    """A body that comes part by part; something is done after each."""

    def __init__(self, *parts: bytes, after: Callable[[], object] = lambda: None) -> None:
        self._parts, self._after = parts, after

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            yield part
            self._after()


@pytest.mark.parametrize(("ask", "most"), [(lambda s, _: s.get("/x"), 12), (lambda s, at: s.download("/x", at), 130)])
def test_a_byte_a_second_ends(ask: Callable[[MlflowServer, Path], object], most: int, tmp_path: Path) -> None:
    clock = FakeClock()

    def pass_a_second() -> None:
        clock.elapsed += 1

    drip = httpx.Response(200, stream=Parts(*[b" "] * 1000, after=pass_a_second))
    server = MlflowServer(
        MlflowAccess(url=URI), transport=httpx.MockTransport(lambda _: drip), monotonic=clock.monotonic
    )
    with pytest.raises(StoreUnreachable, match="its answer comes too slowly"):
        ask(server, tmp_path / "x")
    assert clock.elapsed <= most


def test_an_answer_without_an_end_ends() -> None:
    endless = httpx.Response(200, stream=Parts(*[b" " * (64 << 20)] * (MOST_BYTES >> 26), b"one more"))
    with pytest.raises(StoreUnreachable, match="answers with more than 256 MB"):
        ScriptedMlflow(endless).server.get("/x")


def test_a_call_that_never_answers_ends() -> None:
    never = Event()

    class Hanging:
        def run(self, run: str) -> None:
            never.wait()

    try:
        with pytest.raises(StoreUnreachable, match=r"no whole answer in 0\.01 s"):
            bounded(Hanging(), URI, seconds=0.01).run("a")
    finally:
        never.set()


def test_pages_without_an_end_end() -> None:
    with pytest.raises(StoreUnreachable, match=f"more than {MOST_PAGES} pages"):
        list(all_pages(lambda token: ([], str(int(token or 0) + 1))))


def test_folders_without_an_end_end() -> None:
    server = ScriptedMlflow(httpx.Response(200, json={"files": [{"path": f"{n}", "is_dir": True} for n in range(50)]}))
    with pytest.raises(RegistryError, match=f"more than {MOST_FILES} files"):
        list(files_below(server.server, "1"))
