"""What answers in MLflow's place, or answers oddly: one line that says so, and exit 4, whatever is asked."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from signal import SIGINT
from threading import Event

import pytest
from fakes.services.scripted_mlflow import Answer, scripted
from mlflow.store.entities import PagedList

from pipelines.events.writer import passes
from registry import mlflow, mlflow_client
from registry.errors import RegistryError, StoreRefused, StoreUnreachable
from registry.mlflow import MlflowStore
from registry.mlflow_client import MOST_PAGES, all_pages
from registry.model import PendingFiles, StoredRun
from registry.ports import Store
from tidegate.core.errors import ExitCode, TidegateError

URI = "http://mlflow:5000"
DEEP = b"[" * 100_000
LONG = b'{"run": {"info": {"start_time": ' + b"1" * 5000 + b"}}}"
INFO = {"run_id": "a", "status": "RUNNING", "start_time": 1, "artifact_uri": "mlflow-artifacts:/1"}
EXPERIMENT: Mapping[str, object] = {"experiment_id": "7", "lifecycle_stage": "active"}
RUN = StoredRun(id="a", status="RUNNING", started=0, ended=None, artifacts="mlflow-artifacts:/1/a/artifacts", tags={})
PENDING = PendingFiles(id="m-1", address="mlflow-artifacts:/1/models/m-1/artifacts")
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
    {"files": 7},
    {"files": [{"path": "a"}]},
    DEEP,
    LONG,
    b'{"run": {"info": {"start_time": 1e999}}}',
    b"\xff\xfe{}",
    b"<html>welcome</html>",
)
ANSWERS = (*map(Answer, BODIES), Answer(DEEP, 404), Answer(["no"], 404))
ASKED: tuple[Callable[[Store], object], ...] = (
    lambda store: store.run("a"),
    lambda store: store.search_runs("tidegate/m", {}),
    lambda store: store.create_run("tidegate/m", name="n", started=0, tags={}, params={}),
    lambda store: store.log("a", tags={"b": "c"}),
    lambda store: store.claim("a", "b", "c"),
    lambda store: store.aliases("m"),
    lambda store: store.version("m", "1"),
    lambda store: store.versions("m"),
    lambda store: store.address("m", "1"),
    lambda store: store.listed(f"{RUN.artifacts}/spec"),
    lambda store: store.begin_files("tidegate/m", "m", "Llama"),
    lambda store: store.add_version("m", PENDING.source, tags={}),
)


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "PAUSE_SECONDS", 0.01)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: str(answer.content)[:40])
def test_whatever_is_asked_it_is_an_error_of_the_store(answer: Answer) -> None:
    with scripted(answer) as there:
        for question in ASKED:
            try:
                question(MlflowStore(there.uri))
            except TidegateError as error:
                assert error.exit_code is ExitCode.OUTSIDE, error
                assert len(str(error)) < 500
                assert "\n" not in str(error)


def test_a_body_in_broken_gzip_is_one_too_and_may_pass() -> None:
    """In the middle of a delivery: the writer keeps the event and tries again."""
    with (
        scripted(Answer(b"no gzip", headers={"Content_Encoding": "gzip"})) as there,
        pytest.raises(StoreUnreachable, match=r"failed to decode it|incorrect header check") as caught,
    ):
        MlflowStore(there.uri).log("a", tags={"b": "c"})
    assert passes(caught.value)


def drip() -> Iterator[bytes]:
    for _ in range(100):
        yield b" "
        time.sleep(0.05)


@pytest.mark.parametrize("ask", [ASKED[0], lambda store: store.fetch(PENDING.address, "x", Path("/dev/null"))])
def test_a_byte_now_and_then_ends(ask: Callable[[Store], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(mlflow_client, "TRANSFER_SECONDS", 1.0)
    with scripted(Answer(parts=drip)) as there, pytest.raises(StoreUnreachable, match="its answer comes too slowly"):
        ask(MlflowStore(there.uri))


def test_an_answer_without_an_end_ends_and_takes_no_more_memory_than_it_may() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * (1 << 20)

    with scripted(Answer(parts=endless)) as there:
        store = MlflowStore(there.uri)
        with pytest.raises(StoreUnreachable, match="answers with more than 64 MB"):
            store.run("a")
        tracemalloc.start()
        with pytest.raises(StoreUnreachable, match="answers with more than 64 MB"):
            store.run("a")
        assert tracemalloc.get_traced_memory()[1] < 3 * mlflow_client.MOST_BYTES
        tracemalloc.stop()


def test_a_call_that_never_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    never, store = Event(), MlflowStore("http://127.0.0.1:1")
    monkeypatch.setattr(store, "_seconds", 0.01)
    try:
        with pytest.raises(StoreUnreachable, match=r"no whole answer in 0\.01 s"):
            store.ask(never.wait)
    finally:
        never.set()


HANGS = """
import signal, sys
# Who runs tests in the background may have it ignored, which children inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
from registry.mlflow import MlflowStore
print("asks", flush=True)
MlflowStore(sys.argv[1]).aliases("m")
"""


@pytest.mark.slow(reason="a process imports MLflow")
def test_ctrl_c_ends_a_command_while_a_server_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
    never = Event()

    def nothing() -> Iterator[bytes]:
        never.wait()
        yield from ()

    with scripted(Answer(parts=nothing)) as there:
        command = [sys.executable, "-c", HANGS, there.uri]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while not there.asked:
                time.sleep(0.01)
            process.send_signal(SIGINT)
            # Far less than a request may take.
            assert b"KeyboardInterrupt" in process.communicate(timeout=120)[1]
        finally:
            never.set()
            process.kill()
            process.wait()


def test_pages_without_an_end_end() -> None:
    with pytest.raises(StoreUnreachable, match=f"more than {MOST_PAGES} pages"):
        list(all_pages(lambda token: PagedList([], str(int(token or 0) + 1))))


def test_folders_without_an_end_end() -> None:
    folders = Answer({"files": [{"path": f"{number}", "is_dir": True} for number in range(500)]})
    with scripted(folders) as there, pytest.raises(RegistryError, match=f"more than {mlflow.MOST_FILES} files"):
        MlflowStore(there.uri).listed(PENDING.address)


@pytest.mark.parametrize("name", ["..", "", "a\\b"])
def test_an_artifact_cannot_lie_outside_its_folder(name: str) -> None:
    listing = Answer({"files": [{"path": name, "is_dir": False}]})
    with scripted(listing) as there, pytest.raises(RegistryError):
        MlflowStore(there.uri).listed(f"{RUN.artifacts}/spec")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_fault_that_passes_is_tried_again(status: int) -> None:
    with scripted(Answer({}, status), Answer({}, status), Answer({"run": {"info": INFO}})) as there:
        found = MlflowStore(there.uri).run("a")
    assert found is not None
    assert len(there.asked) == 3


def test_one_that_does_not_pass_is_said_in_one_line() -> None:
    with (
        scripted(Answer({"message": "full"}, 503)) as there,
        pytest.raises(StoreUnreachable, match="answered 503: full") as caught,
    ):
        MlflowStore(there.uri).run("a")
    assert len(there.asked) == 4
    assert passes(caught.value)


ONCE: tuple[tuple[str, Callable[[Store], object]], ...] = (
    ("/runs/create", ASKED[2]),
    ("/logged-models", ASKED[-2]),
    ("/model-versions/create", ASKED[-1]),
)


@pytest.mark.parametrize(("path", "ask"), ONCE)
def test_what_makes_another_each_time_is_asked_once(path: str, ask: Callable[[Store], object]) -> None:
    before = {"/model-versions/create": [Answer({}), Answer({})]}.get(path, [Answer({"experiment": EXPERIMENT})])
    with scripted(*before, Answer({}, 500)) as there, pytest.raises(StoreUnreachable, match="answered 500"):
        ask(MlflowStore(there.uri))
    assert [asked.endswith(path) for _, asked in there.asked].count(True) == 1


REFUSALS = [
    (400, "takes no such value"),
    (401, "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"),
    (403, "MLflow does not let this user do it"),
    (404, "check the tracking URI"),
    (409, "check the tracking URI"),
]


@pytest.mark.parametrize(("status", "hint"), REFUSALS)
@pytest.mark.parametrize("content", [b"no such thing\nat line 3", {"message": "no such thing\nat line 3"}])
def test_a_refusal_is_said_in_the_servers_words_and_not_tried_again(status: int, hint: str, content: object) -> None:
    with scripted(Answer(content, status)) as there, pytest.raises(StoreRefused) as caught:
        MlflowStore(there.uri).run("a")
    assert str(caught.value).startswith(f"MLflow store {there.uri}: answered {status}: no such thing; ")
    assert hint in str(caught.value)
    assert (caught.value.status, len(there.asked)) == (status, 1)


def test_no_secret_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with scripted(Answer({"message": "no"}, 403)) as there:
        with_password = there.uri.replace("//", "//ann:correct-horse@")
        with pytest.raises(StoreRefused) as refused:
            MlflowStore(with_password).run("a")
        with pytest.raises(StoreRefused) as file:
            MlflowStore(with_password).listed(PENDING.address)
        # As a file that ends with a line break has it.
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "battery-staple\n")
        with pytest.raises(StoreUnreachable) as unsent:
            MlflowStore(there.uri).run("a")
    assert there.headers[0]["Authorization"].startswith("Basic ")
    for caught in (refused, file, unsent):
        told = f"{caught.value} {caught.value.detail} {caught.value!r}"
        assert not any(secret in told for secret in ("correct-horse", "battery-staple"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kept", ["hunt3r2\n", "[mlflow\nhunt3r2", "[mlflow]\nhunt3r2\n", "[a]\n[a]\nhunt3r2"])
def test_a_file_of_credentials_of_another_shape_is_refused_and_not_quoted(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow/credentials").write_text(kept)
    with pytest.raises(TidegateError, match=r"^~/\.mlflow/credentials: found no INI file") as caught:
        MlflowStore(URI).run("a")
    assert caught.value.exit_code is ExitCode.USAGE
    assert "hunt3r2" not in f"{caught.value} {caught.value.detail}"


def test_a_file_that_breaks_off_is_brought_again(tmp_path: Path) -> None:
    # MLflow's client asks first what the server can do.
    with scripted(Answer({}), Answer(b"abc", cut=True), Answer(b"abcde")) as there:
        MlflowStore(there.uri).fetch(PENDING.address, "a b", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"abcde"
    assert there.asked[1:] == [("GET", "/api/2.0/mlflow-artifacts/artifacts/1/models/m-1/artifacts/a%20b")] * 2


def test_a_file_that_is_not_there_is_no_fault_that_passes(tmp_path: Path) -> None:
    with scripted(Answer({"message": "none"}, 404)) as there, pytest.raises(StoreRefused, match="answered 404: none"):
        MlflowStore(there.uri).fetch(PENDING.address, "x", tmp_path / "got")
    assert len(there.asked) == 2


def test_a_file_is_sent_whole_again_after_a_fault(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"0123456789")
    with scripted(Answer({}, 503), Answer({})) as there:
        MlflowStore(there.uri).put(PENDING.address, "model/weights", tmp_path / "weights")
    path = "/api/2.0/mlflow-artifacts/artifacts/1/models/m-1/artifacts/model/weights"
    assert there.asked == [("PUT", path)] * 2
    assert {headers["Content-Length"] for headers in there.headers} == {"10"}
