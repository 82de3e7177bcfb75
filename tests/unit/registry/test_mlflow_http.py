"""Requests to an MLflow server that stumbles, refuses, or is somebody else."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fakes.services.scripted_mlflow import ScriptedMlflow

from registry.adapters.mlflow_address import MlflowAccess
from registry.adapters.mlflow_http import MlflowServer
from registry.adapters.mlflow_library import LibraryStore
from registry.adapters.mlflow_rest import ProxiedArtifacts, RestRuns
from registry.errors import RegistryError, StoreRefused, StoreUnreachable
from registry.model import StoredRun

Answer = Callable[[httpx.Request], httpx.Response]
RUN = StoredRun(id="1", status="RUNNING", started=0, ended=None, artifacts="mlflow-artifacts:/1/r/artifacts", tags={})


def fine(**content: object) -> httpx.Response:
    return httpx.Response(200, json=content)


def refused(status: int, code: str = "", message: str = "no") -> httpx.Response:
    return httpx.Response(status, json={"error_code": code, "message": message})


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_fault_that_passes_is_waited_for(status: int) -> None:
    asked = ScriptedMlflow(httpx.Response(status, text="later"), httpx.Response(status, text="later"), fine(a=1))
    assert asked.server.get("/x") == {"a": 1}
    assert asked.pauses[0] == 0.0
    assert 4 <= asked.pauses[1] <= 5


def test_a_server_that_names_a_time_is_asked_then() -> None:
    asked = ScriptedMlflow(httpx.Response(429, headers={"Retry-After": "7"}), fine())
    asked.server.get("/x")
    assert asked.pauses == [7.0]


def test_nobody_there_is_said_in_one_line_after_the_retries() -> None:
    asked = ScriptedMlflow(httpx.ConnectError("refused"))
    with pytest.raises(StoreUnreachable, match=r"^MLflow store http://mlflow:5000: no answer \(refused\); check"):
        asked.server.get("/x")
    assert len(asked.requests) == 4


def test_a_call_takes_no_longer_than_its_limit_however_long_the_server_asks_to_wait() -> None:
    asked = ScriptedMlflow(httpx.Response(503, headers={"Retry-After": "30"}), fine())
    with pytest.raises(StoreUnreachable, match="answered 503"):
        asked.server.get("/x")
    assert asked.pauses == []


def test_a_file_has_the_time_that_it_needs(tmp_path: Path) -> None:
    asked = ScriptedMlflow(httpx.Response(503, headers={"Retry-After": "30"}), fine())
    asked.server.download("/x", tmp_path / "x")
    assert asked.pauses == [30.0]
    limits = [request.extensions["timeout"] for request in asked.requests]
    assert {limit["read"] for limit in limits} == {120.0}
    asked.server.get("/y")
    assert asked.requests[-1].extensions["timeout"]["read"] == 10.0


def test_what_must_not_be_done_twice_is_not_repeated_once_it_may_have_arrived() -> None:
    asked = ScriptedMlflow(httpx.ReadTimeout("slow"), fine())
    with pytest.raises(StoreUnreachable, match="ReadTimeout"):
        asked.server.send("POST", "/x", {}, may_repeat=False)
    assert len(asked.requests) == 1


def test_it_is_repeated_while_nothing_can_have_been_done() -> None:
    asked = ScriptedMlflow(httpx.ConnectError("refused"), httpx.Response(429), fine(run="1"))
    assert asked.server.send("POST", "/x", {}, may_repeat=False) == {"run": "1"}


def test_a_refusal_is_said_in_mlflows_words_and_not_tried_again() -> None:
    asked = ScriptedMlflow(refused(400, "INVALID_PARAMETER_VALUE", "no such thing\nat line 3"))
    with pytest.raises(StoreRefused, match="answered 400: no such thing") as caught:
        asked.server.get("/x")
    assert (caught.value.code, caught.value.status, len(asked.requests)) == ("INVALID_PARAMETER_VALUE", 400, 1)


def test_who_may_not_in_is_told_which_variables_to_set() -> None:
    with pytest.raises(StoreRefused, match="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"):
        ScriptedMlflow(httpx.Response(401, text="You are not authenticated")).server.get("/x")


def test_another_server_at_that_address_is_said_so() -> None:
    with pytest.raises(StoreUnreachable, match="what answers there is not MLflow"):
        ScriptedMlflow(httpx.Response(200, text="<html>welcome</html>")).server.get("/x")


def test_credentials_are_sent_and_never_told() -> None:
    asked = ScriptedMlflow(
        refused(403),
        access=MlflowAccess(url="http://mlflow:5000", basic=("ann", "s3cret"), token="t0ken", workspace="team"),
    )
    with pytest.raises(StoreRefused) as caught:
        asked.server.get("/x")
    headers = asked.requests[0].headers
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"ann:s3cret").decode()
    assert headers["X-MLFLOW-WORKSPACE"] == "team"
    assert "s3cret" not in f"{caught.value} {caught.value.detail} {caught.value!r}"


def test_a_token_is_a_bearer() -> None:
    asked = ScriptedMlflow(fine(), access=MlflowAccess(url="http://mlflow:5000", token="t0ken"))
    asked.server.get("/x")
    assert asked.requests[0].headers["Authorization"] == "Bearer t0ken"


def test_a_certificate_that_is_not_there_is_said_so() -> None:
    access = MlflowAccess(url="https://mlflow", server_certificates="/nowhere/ca.pem")
    with pytest.raises(StoreUnreachable, match="a certificate cannot be read: No such file"):
        MlflowServer(access)


def test_all_pages_of_runs_are_read() -> None:
    def run(number: str) -> dict[str, object]:
        return {"info": {"run_id": number, "status": "RUNNING", "start_time": 1, "artifact_uri": "mlflow-artifacts:/1"}}

    asked = ScriptedMlflow(
        fine(experiment={"experiment_id": "7", "lifecycle_stage": "active"}),
        fine(runs=[run("a")], next_page_token="more"),
        fine(runs=[run("b")]),
    )
    assert [each.id for each in RestRuns(asked.server).search_runs("tidegate/m", {})] == ["a", "b"]


def test_a_deleted_experiment_is_said_so() -> None:
    asked = ScriptedMlflow(fine(experiment={"experiment_id": "7", "lifecycle_stage": "deleted"}))
    with pytest.raises(RegistryError, match="experiment tidegate/m is deleted; restore it"):
        RestRuns(asked.server).create_run("tidegate/m", name="n", started=0, tags={}, params={})


@pytest.mark.parametrize("name", ["..", "a/b", "", "a\\b"])
def test_an_artifact_cannot_lie_outside_its_folder(name: str) -> None:
    asked = ScriptedMlflow(fine(files=[{"path": name, "is_dir": False}]))
    artifacts = ProxiedArtifacts(asked.server, LibraryStore("http://mlflow:5000"))
    with pytest.raises(RegistryError, match="lists an artifact named"):
        artifacts.files(RUN, "spec")


def test_artifacts_are_put_and_fetched_by_their_places(tmp_path: Path) -> None:
    asked = ScriptedMlflow(httpx.Response(200, content=b"text"))
    artifacts = ProxiedArtifacts(asked.server, LibraryStore("http://mlflow:5000"))
    (tmp_path / "a b.yaml").write_bytes(b"spec")
    artifacts.upload(RUN, tmp_path / "a b.yaml", "spec/more")
    artifacts.download(RUN, "spec/a b.yaml", tmp_path / "fetched")
    below = "/api/2.0/mlflow-artifacts/artifacts/1/r/artifacts"
    assert [(each.method, each.url.raw_path.decode()) for each in asked.requests] == [
        ("PUT", f"{below}/spec/more/a%20b.yaml"),
        ("GET", f"{below}/spec/a%20b.yaml"),
    ]
    assert asked.requests[0].content == b"spec"
    assert (tmp_path / "fetched").read_bytes() == b"text"


class Broken(httpx.SyncByteStream):
    """A body whose connection ends in the middle."""

    def __init__(self, part: bytes) -> None:
        self._part = part

    def __iter__(self) -> Iterator[bytes]:
        yield self._part
        raise httpx.ReadError("gone")


@pytest.mark.parametrize("rest", [httpx.Response(206, content=b"de"), httpx.Response(200, content=b"abcde")])
def test_a_file_that_breaks_off_is_gone_on_with_where_it_broke(rest: httpx.Response) -> None:
    asked = ScriptedMlflow(httpx.Response(200, stream=Broken(b"abc")), rest)

    assert b"".join(asked.server.parts("/x")) == b"abcde"
    assert [request.headers.get("Range") for request in asked.requests] == [None, "bytes=3-"]


def test_a_file_that_never_comes_is_said_in_one_line() -> None:
    asked = ScriptedMlflow(httpx.ReadError("gone"))

    with pytest.raises(StoreUnreachable, match=r"^MLflow store http://mlflow:5000: no answer"):
        list(asked.server.parts("/x"))
    assert len(asked.requests) == 4


def test_a_file_that_is_not_there_is_no_fault_that_passes() -> None:
    asked = ScriptedMlflow(refused(404, "RESOURCE_DOES_NOT_EXIST"))

    with pytest.raises(StoreRefused):
        list(asked.server.parts("/x"))
    assert len(asked.requests) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed (_ssl.c:1006)"),
            r"certificate is not believed: self-signed; MLFLOW_TRACKING_SERVER_CERT_PATH names a file of authorities",
        ),
        (
            httpx.ReadError("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:2580)"),
            r"no client certificate that it takes; set MLFLOW_TRACKING_CLIENT_CERT_PATH to a file",
        ),
    ],
)
def test_a_certificate_that_is_not_believed_is_told_at_once(error: Exception, said: str) -> None:
    scene = ScriptedMlflow(error, access=MlflowAccess(url="https://mlflow"))
    with pytest.raises(StoreUnreachable, match=said):
        scene.server.get("/")
    assert (len(scene.requests), scene.pauses) == (1, [])


def test_a_server_that_hangs_up_over_tls_may_want_a_certificate() -> None:
    scene = ScriptedMlflow(httpx.ReadError(""), access=MlflowAccess(url="https://mlflow", retries=0))
    with pytest.raises(StoreUnreachable, match=r"no answer \(ReadError; a server .* MLFLOW_TRACKING_CLIENT_CERT_PATH"):
        scene.server.get("/")
