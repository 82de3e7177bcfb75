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

from pipelines.events.spool import passes
from registry.adapters import mlflow_requests
from registry.adapters.mlflow_calls import MOST_PAGES, all_pages, bounded
from registry.adapters.mlflow_library import LibraryStore
from registry.adapters.mlflow_store import Store, open_store
from registry.adapters.version_files import library
from registry.errors import RegistryError, StoreRefused, StoreUnreachable
from registry.model import PendingVersion, StoredRun
from tidegate.core.errors import ExitCode, TidegateError

URI = "http://mlflow:5000"
DEEP = b"[" * 100_000
LONG = b'{"run": {"info": {"start_time": ' + b"1" * 5000 + b"}}}"
INFO = {"run_id": "a", "status": "RUNNING", "start_time": 1, "artifact_uri": "mlflow-artifacts:/1"}
EXPERIMENT: Mapping[str, object] = {"experiment_id": "7", "lifecycle_stage": "active"}
RUN = StoredRun(id="a", status="RUNNING", started=0, ended=None, artifacts="mlflow-artifacts:/1/a/artifacts", tags={})
PENDING = PendingVersion(id="m-1", artifacts="mlflow-artifacts:/1/models/m-1/artifacts")
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
    lambda store: store.runs.run("a"),
    lambda store: store.runs.search_runs("tidegate/m", {}),
    lambda store: store.runs.create_run("tidegate/m", name="n", started=0, tags={}, params={}),
    lambda store: store.runs.log("a", tags={"b": "c"}),
    lambda store: store.models.model("m"),
    lambda store: store.models.version("m", "1"),
    lambda store: store.models.versions("m"),
    lambda store: store.models.address("m", "1"),
    lambda store: store.artifacts.files(RUN, "spec"),
    lambda store: store.log.begin("tidegate/m", "m", "Llama"),
    lambda store: store.log.finish(PENDING, "m", {}, None),
)


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are short, and their growth is MLflow's."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
    monkeypatch.setattr(library, "PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: str(answer.content)[:40])
def test_whatever_is_asked_it_is_an_error_of_the_store(answer: Answer) -> None:
    with scripted(answer) as there:
        for question in ASKED:
            try:
                question(open_store(there.uri))
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
        open_store(there.uri).runs.log("a", tags={"b": "c"})
    assert passes(caught.value)


def drip() -> Iterator[bytes]:
    for _ in range(100):
        yield b" "
        time.sleep(0.05)


@pytest.mark.parametrize("ask", [ASKED[0], lambda store: b"".join(store.files.parts(PENDING.artifacts, "x"))])
def test_a_byte_now_and_then_ends(ask: Callable[[Store], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(mlflow_requests, "TRANSFER_SECONDS", 1.0)
    with scripted(Answer(parts=drip)) as there, pytest.raises(StoreUnreachable, match="its answer comes too slowly"):
        ask(open_store(there.uri))


def test_an_answer_without_an_end_ends_and_takes_no_more_memory_than_it_may() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * (1 << 20)

    with scripted(Answer(parts=endless)) as there:
        store = open_store(there.uri)
        with pytest.raises(StoreUnreachable, match="answers with more than 64 MB"):
            store.runs.run("a")
        tracemalloc.start()
        with pytest.raises(StoreUnreachable, match="answers with more than 64 MB"):
            store.runs.run("a")
        assert tracemalloc.get_traced_memory()[1] < 3 * mlflow_requests.MOST_BYTES
        tracemalloc.stop()


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


HANGS = """
import sys
from registry.adapters.mlflow_store import open_store
print("asks", flush=True)
open_store(sys.argv[1]).models.model("m")
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
        list(all_pages(lambda token: ([], str(int(token or 0) + 1))))


def test_folders_without_an_end_end() -> None:
    folders = Answer({"files": [{"path": f"{number}", "is_dir": True} for number in range(500)]})
    with scripted(folders) as there, pytest.raises(RegistryError, match=f"more than {library.MOST_FILES} files"):
        open_store(there.uri).files.listed(PENDING.artifacts)


@pytest.mark.parametrize("name", ["..", "", "a\\b"])
def test_an_artifact_cannot_lie_outside_its_folder(name: str) -> None:
    listing = Answer({"files": [{"path": name, "is_dir": False}]})
    with scripted(listing) as there, pytest.raises(RegistryError):
        open_store(there.uri).artifacts.files(RUN, "spec")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_fault_that_passes_is_tried_again(status: int) -> None:
    with scripted(Answer({}, status), Answer({}, status), Answer({"run": {"info": INFO}})) as there:
        found = open_store(there.uri).runs.run("a")
    assert found is not None
    assert len(there.asked) == 3


def test_one_that_does_not_pass_is_said_in_one_line() -> None:
    with (
        scripted(Answer({"message": "full"}, 503)) as there,
        pytest.raises(StoreUnreachable, match="answered 503: full") as caught,
    ):
        open_store(there.uri).runs.run("a")
    assert len(there.asked) == 4
    assert passes(caught.value)


def test_a_server_that_asks_to_wait_longer_than_a_call_may_take_is_not_waited_for() -> None:
    with (
        scripted(Answer({}, 503, {"Retry_After": "30"})) as there,
        pytest.raises(StoreUnreachable, match="answered 503"),
    ):
        open_store(there.uri).runs.run("a")
    assert len(there.asked) == 1


ONCE: tuple[tuple[str, Callable[[Store], object]], ...] = (
    ("/runs/create", ASKED[2]),
    ("/logged-models", ASKED[-2]),
    ("/model-versions/create", ASKED[-1]),
)


@pytest.mark.parametrize(("path", "ask"), ONCE)
@pytest.mark.parametrize(("fault", "times"), [(Answer({}, 500), 1), (Answer({}, 429), 4)])
def test_what_makes_another_each_time_is_repeated_only_while_nothing_can_have_been_done(
    path: str, ask: Callable[[Store], object], fault: Answer, times: int
) -> None:
    before = {"/model-versions/create": [Answer({}), Answer({})]}.get(path, [Answer({"experiment": EXPERIMENT})])
    with scripted(*before, fault) as there, pytest.raises(StoreUnreachable, match=f"answered {fault.status}"):
        ask(open_store(there.uri))
    assert [asked.endswith(path) for _, asked in there.asked].count(True) == times


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
        open_store(there.uri).runs.run("a")
    assert str(caught.value).startswith(f"MLflow store {there.uri}: answered {status}: no such thing; ")
    assert hint in str(caught.value)
    assert (caught.value.status, len(there.asked)) == (status, 1)


def test_nobody_there_is_said_in_one_line() -> None:
    with scripted(Answer()) as there:
        pass
    with pytest.raises(StoreUnreachable) as caught:
        open_store(there.uri).runs.run("a")
    said = f"MLflow store {there.uri}: no answer ([Errno 111] Connection refused); check the tracking URI"
    assert str(caught.value).startswith(said)


def test_no_secret_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    with scripted(Answer({"message": "no"}, 403)) as there:
        with_password = there.uri.replace("//", "//ann:correct-horse@")
        with pytest.raises(StoreRefused) as refused:
            open_store(with_password).runs.run("a")
        with pytest.raises(StoreRefused) as file:
            open_store(with_password).files.listed(PENDING.artifacts)
        # As a file that ends with a line break has it.
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "battery-staple\n")
        with pytest.raises(StoreUnreachable) as unsent:
            open_store(there.uri).runs.run("a")
    assert there.headers[0]["Authorization"].startswith("Basic ")
    for caught in (refused, file, unsent):
        told = f"{caught.value} {caught.value.detail} {caught.value!r}"
        assert not any(secret in told for secret in ("correct-horse", "battery-staple"))
    assert capfd.readouterr() == ("", "")


def test_what_a_caller_was_handling_is_not_what_went_wrong() -> None:
    with scripted(Answer()) as there:
        pass
    try:
        int("of the caller")
    except ValueError:
        with pytest.raises(StoreUnreachable, match="Connection refused"):
            LibraryStore(there.uri).run("a")


@pytest.mark.parametrize("kept", ["hunt3r2\n", "[mlflow\nhunt3r2", "[mlflow]\nhunt3r2\n", "[a]\n[a]\nhunt3r2"])
def test_a_file_of_credentials_of_another_shape_is_refused_and_not_quoted(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow/credentials").write_text(kept)
    with pytest.raises(TidegateError, match=r"^~/\.mlflow/credentials: found no INI file") as caught:
        open_store(URI).runs.run("a")
    assert caught.value.exit_code is ExitCode.USAGE
    assert "hunt3r2" not in f"{caught.value} {caught.value.detail}"


@pytest.mark.parametrize("rest", [Answer(b"de", 206), Answer(b"abcde")])
def test_a_file_that_breaks_off_is_gone_on_with_where_it_broke(rest: Answer) -> None:
    with scripted(Answer(b"abc", cut=True), rest) as there:
        assert b"".join(open_store(there.uri).files.parts(PENDING.artifacts, "a b")) == b"abcde"
    assert [headers.get("Range") for headers in there.headers] == [None, "bytes=3-"]
    assert there.asked[0] == ("GET", "/api/2.0/mlflow-artifacts/artifacts/1/models/m-1/artifacts/a%20b")


def test_a_file_that_is_not_there_is_no_fault_that_passes() -> None:
    with scripted(Answer({"message": "none"}, 404)) as there, pytest.raises(StoreRefused, match="answered 404: none"):
        b"".join(open_store(there.uri).files.parts(PENDING.artifacts, "x"))
    assert len(there.asked) == 1


def test_a_file_is_sent_whole_again_after_a_fault(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"0123456789")
    with scripted(Answer({}, 503), Answer({})) as there:
        open_store(there.uri).log.upload(PENDING, tmp_path)
    path = "/api/2.0/mlflow-artifacts/artifacts/1/models/m-1/artifacts/model/weights"
    assert there.asked == [("PUT", path)] * 2
    assert {headers["Content-Length"] for headers in there.headers} == {"10"}
