"""What a Prometheus' answer says of itself, of its gaps and of nothing; and how far it is read."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from fakes.services.http import QuietHandler, answering, page

from tidegate.core.adapters import prometheus
from tidegate.core.adapters.prometheus import InstantResult, PrometheusClient, PrometheusUnreachable
from tidegate.core.errors import OutsideError

VECTOR = {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2"]}]}
STORE = "receive series from sidecar-b:10901: rpc error: code = Unavailable\ndesc = connection refused"
INFO = 'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "x" (1:6)'
MIXED = "PromQL warning: encountered a mix of histograms and floats for aggregation (1:1)"


def asked(body: Any) -> InstantResult:
    with page(lambda: json.dumps(body)) as address:
        return PrometheusClient(f"http://{address}", timeout_seconds=5).query("x")


def success(data: Any = VECTOR, **more: Any) -> dict[str, Any]:
    return {"status": "success", "data": data, **more}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            success(warnings=[STORE]),
            "only in part: receive series from sidecar-b:10901: rpc error: code = Unavailable d",
        ),
        (success(warnings=[INFO, MIXED]), "only in part: PromQL warning: encountered a mix"),
        (success(warnings="a store is away"), "only in part: a store is away"),
        (success(isPartial=True), "only in part: isPartial: true"),
        (success(None), "no result of a query"),
        (success([]), "no result of a query"),
        (success({"resultType": "matrix"} | {"result": [{"metric": {}, "values": [[1, None]]}]}), "no result"),
        (success({"resultType": "vector", "result": [None]}), "no result of a query"),
        (success({"resultType": "scalar", "result": None}), "no result of a query"),
        ([], "and no Prometheus"),
        (None, "and no Prometheus"),
    ],
)
def test_an_answer_in_part_and_one_that_is_none_are_errors_of_the_source(body: Any, told: str) -> None:
    with pytest.raises(PrometheusUnreachable, match=told) as caught:
        asked(body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"infos": [INFO]}, {"warnings": [INFO]}, {"warnings": None, "isPartial": False}])
def test_remarks_are_harmless(more: dict[str, Any]) -> None:
    assert [each.value for each in asked(success(**more)).series] == [(1, 2)]


@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_null_is_nothing_found(kind: str) -> None:
    assert asked(success({"resultType": kind, "result": None})) == InstantResult(kind, [])


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", "[::1", "prometheus:99999", "*"])
def test_an_address_that_leads_nowhere_is_away(host: str) -> None:
    with pytest.raises(PrometheusUnreachable, match="does not answer"):
        PrometheusClient(f"http://{host}", timeout_seconds=5).query("x")


def test_one_that_is_away_is_told_in_plain_words() -> None:
    with pytest.raises(PrometheusUnreachable) as caught:
        PrometheusClient("http://127.0.0.1:9", timeout_seconds=5).query("x")
    assert caught.value.detail == "Connection refused"


def served(handle: Callable[[QuietHandler], None]) -> AbstractContextManager[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            # Whoever cut the line is not told more.
            with suppress(OSError):
                handle(self)

    return answering(Handler)


def test_it_is_asked_directly_and_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password S3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    heard: list[str] = []

    def busy(request: QuietHandler) -> None:
        heard.append(f"{request.path} {request.headers.get('authorization')}")
        request.answer("busy", 503)

    with served(busy) as address, pytest.raises(PrometheusUnreachable, match="answered 503 and no Prometheus"):
        PrometheusClient(f"http://{address}/prom/", timeout_seconds=5).query('a{b="c d+e"}', datetime.fromtimestamp(1))
    assert heard == ["/prom/api/v1/query?query=a%7Bb%3D%22c%20d%2Be%22%7D&time=1.0 None"]


def endless(request: QuietHandler) -> None:
    request.answer(content_type="application/json", content_length=str(1 << 40))
    while request.wfile.write(bytes(1 << 20)):
        pass


def bomb(request: QuietHandler) -> None:
    request.answer(gzip.compress(bytes(2 * prometheus.MOST_BYTES)), content_encoding="gzip")


@pytest.mark.parametrize("answer", [endless, bomb])
def test_an_answer_without_an_end_is_not_read_to_it(
    answer: Callable[[QuietHandler], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 3 << 20)
    with served(answer) as address, pytest.raises(PrometheusUnreachable, match="answers with more than 3 MiB"):
        PrometheusClient(f"http://{address}", timeout_seconds=20).query("x")


@pytest.mark.parametrize("beginning", ["", "HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_trickles_is_cut(beginning: str) -> None:
    def trickle(request: QuietHandler) -> None:
        request.wfile.write(beginning.encode() or b"HTTP/1.1 200 OK\r\n")
        while request.wfile.write(b"x"):
            sleep(0.02)

    begun = monotonic()
    with served(trickle) as address, pytest.raises(PrometheusUnreachable, match="does not answer") as caught:
        PrometheusClient(f"http://{address}", timeout_seconds=0.5).query("x")
    assert caught.value.detail == "no whole answer in time" and monotonic() - begun < 3


def test_nothing_is_sent_where_a_name_leads_to_a_metadata_server(monkeypatch: pytest.MonkeyPatch) -> None:
    class Line(socket.socket):
        def getpeername(self) -> tuple[str, int]:
            return ("169.254.169.254", 80)

    ours, other = socket.socketpair()
    with Line(fileno=ours.detach()) as line, other:
        monkeypatch.setattr(socket, "create_connection", lambda *_: line)
        with pytest.raises(OutsideError, match=r"^169\.254\.169\.254 is link-local"):
            PrometheusClient("http://prometheus.example", timeout_seconds=5).query("x")
        assert other.recv(1) == b""
