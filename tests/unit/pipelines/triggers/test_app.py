"""What `serve` answers to MLflow, to others, and to nonsense; and who may look at what it shows."""

from __future__ import annotations

import itertools
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.delivery.registry import FakeLedgers, FakeMarks, FakeStarter, Inbox
from httpx import Response
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pipelines.triggers.app import (
    MOST_BYTES,
    OPEN_TO_ALL,
    WEBHOOK,
    Numbers,
    Receiver,
    behind_door,
    metrics_route,
    receiver_routes,
)
from pipelines.triggers.reconciler import Reconciler
from pipelines.triggers.webhooks import DELIVERY_ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from registry.model import DeliverySummary
from slo.metrics import OF_REGISTRY
from tidegate.testing import FakeClock

TOKEN = "0123456789abcdef0123456789abcdef"


async def secret(_: Request) -> PlainTextResponse:
    return PlainTextResponse("shown")


async def alive(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


def client(password: str | None = None, *, base: str = "http://localhost") -> TestClient:
    routes = [Route("/", secret), Route("/healthz", alive)]
    app = behind_door(routes, hosts=["page.example"], password=password, open_to_all=["/healthz"])
    return TestClient(app, base_url=base)


@pytest.mark.parametrize(
    "base",
    [
        "http://localhost:8093",
        "http://127.0.0.1:8093",
        "http://[::1]:8093",
        "http://page.example",
        "http://PAGE.example:1",
    ],
)
def test_it_answers_to_its_names_and_to_numbers(base: str) -> None:
    assert client(base=base).get("/").status_code == 200


@pytest.mark.parametrize("host", ["rebound.evil.example", "localhost.evil.example:8093", "", "page.example.evil"])
def test_a_name_that_somebody_led_here_sees_nothing(host: str) -> None:
    answer = client().get("/", headers={"Host": host})
    assert (answer.status_code, "shown" in answer.text) == (421, False)


def test_probes_ask_by_any_name_and_without_a_login() -> None:
    assert client(TOKEN).get("/healthz", headers={"Host": "10-1-2-3.pod"}).status_code == 200


def basic(password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"anybody:{password}".encode()).decode()}


def test_a_token_is_asked_for_and_taken_as_browsers_and_programs_send_it() -> None:
    page = client(TOKEN)
    refused = page.get("/")
    assert (refused.status_code, refused.headers["WWW-Authenticate"][:5]) == (401, "Basic")
    assert page.get("/", headers=basic(TOKEN)).status_code == 200
    assert page.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    for wrong in (basic("x"), basic(""), {"Authorization": "Bearer"}, {"Authorization": "Basic ?"}):
        assert page.get("/", headers=wrong).status_code == 401


def test_every_answer_says_what_browsers_may_do_with_it() -> None:
    for answer in (client().get("/"), client().get("/nowhere"), client(TOKEN).get("/")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_a_token_is_in_no_text() -> None:
    app = behind_door([Route("/", secret)], hosts=(), password=TOKEN, open_to_all=())
    assert TOKEN not in f"{app!r} {app.user_middleware!r}"


SECRET = "a secret of thirty-two characters"
NUMBERS = itertools.count()


class Ground:
    """A receiver, and MLflow's part against it."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.woken = FakeClock(), 0
        self.inbox = Inbox(folder / "inbox.db")
        self.marks, self.runs = FakeMarks(), FakeLedgers()
        every, world = timedelta(seconds=30), (self.inbox, self.marks, self.runs, FakeStarter(), self.clock)
        self.reconciler = Reconciler("support-llm", "challenger", every, *world, lambda _: None)
        self.receiver = Receiver("support-llm", "challenger", (SECRET,), self.inbox, self.clock, self._wake)
        routes = [
            *receiver_routes(self.receiver, self.reconciler),
            metrics_route(Numbers(self.receiver, self.reconciler, "support-llm")),
        ]
        self.app = behind_door(routes, hosts=("testserver",), password=None, open_to_all=OPEN_TO_ALL)
        self.client = TestClient(self.app)

    def _wake(self) -> None:
        self.woken += 1

    def headers(self, body: bytes, *, secret: str = SECRET, id: str | None = None, age: int = 0) -> dict[str, str]:
        id, at = id or f"m{next(NUMBERS)}", str(int(self.clock.now().timestamp()) - age)
        return {DELIVERY_ID_HEADER: id, TIMESTAMP_HEADER: at, SIGNATURE_HEADER: sign(secret, id, at, body)}

    def send(self, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, str]:
        answer: Response = self.client.post(WEBHOOK, content=body, headers=headers or self.headers(body))
        return answer.status_code, answer.json()["outcome"]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.inbox.close()


def alias_set(version: int = 7, *, model: str = "support-llm", alias: str = "challenger") -> bytes:
    data = {"name": model, "alias": alias, "version": str(version)}
    return json.dumps({"entity": "model_version_alias", "action": "created", "data": data}).encode()


def alias_deleted(model: str = "support-llm") -> bytes:
    data = {"name": model, "alias": "challenger"}
    return json.dumps({"entity": "model_version_alias", "action": "deleted", "data": data}).encode()


def test_an_alias_that_is_set_is_queued_before_it_is_answered(ground: Ground) -> None:
    assert ground.send(alias_set()) == (202, "queued")
    assert [entry.request.version for entry in ground.inbox.all] == ["7"]
    assert ground.woken == 1


def test_the_same_message_again_is_refused(ground: Ground) -> None:
    body = alias_set()
    headers = ground.headers(body)
    assert [ground.send(body, headers), ground.send(body, headers)] == [(202, "queued"), (409, "replayed")]


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda ground, body: ground.headers(body, secret="somebody else's secret"), "forged"),
        (lambda ground, body: ground.headers(body + b" "), "forged"),
        (lambda ground, body: ground.headers(body, age=301), "stale"),
        (lambda ground, body: ground.headers(body, age=-301), "stale"),
        (lambda ground, body: {"X-Nothing": "signed"}, "unsigned"),
    ],
)
def test_what_is_not_mlflows_own_and_recent_is_refused(
    ground: Ground, change: Callable[[Ground, bytes], dict[str, str]], outcome: str
) -> None:
    body = alias_set()
    assert ground.send(body, change(ground, body)) == (401, outcome)
    assert (ground.inbox.all, ground.woken) == ([], 0)


def test_what_is_too_large_is_refused_though_it_is_signed(ground: Ground) -> None:
    assert ground.send(alias_set() + b" " * MOST_BYTES) == (413, "oversize")


def test_what_is_signed_and_says_nothing_is_malformed(ground: Ground) -> None:
    assert ground.send(b"{}") == (400, "malformed")


def test_events_of_others_are_acknowledged_and_start_nothing(ground: Ground) -> None:
    # MLflow sends every model's events to every webhook; its test event is of a model that does not exist.
    assert ground.send(alias_set(model="example_model", alias="example_alias")) == (200, "unknown-model")
    assert ground.send(alias_set(alias="champion")) == (200, "ignored")
    assert ground.send(alias_deleted("another")) == (200, "unknown-model")
    assert (ground.inbox.all, ground.woken) == ([], 0)


def test_a_mark_that_is_taken_away_has_the_registry_looked_at(ground: Ground) -> None:
    assert ground.send(alias_deleted()) == (200, "noted")
    assert ground.woken == 1


def test_when_the_disk_does_not_take_it_mlflow_is_to_try_again(ground: Ground) -> None:
    ground.inbox.close()
    assert ground.send(alias_set()) == (503, "unavailable")


def test_it_says_how_it_is(ground: Ground) -> None:
    assert ground.client.get("/healthz").status_code == 200
    assert ground.client.get("/readyz").status_code == 503
    ground.reconciler.looked = ground.clock.now()
    assert ground.client.get("/readyz").status_code == 200


def test_numbers_tell_how_messages_ended(ground: Ground) -> None:
    ground.send(alias_set())
    ground.send(alias_set(), ground.headers(alias_set(), secret="somebody else's secret"))
    text = ground.client.get("/metrics").text
    assert 'tidegate_serve_messages_total{outcome="queued"} 1.0' in text
    assert 'tidegate_serve_messages_total{outcome="forged"} 1.0' in text
    assert 'tidegate_serve_requests{state="queued"} 1.0' in text


def test_the_secret_is_in_nothing_that_it_says(ground: Ground) -> None:
    ground.send(alias_set())
    assert SECRET not in ground.client.get("/metrics").text + repr(ground.receiver)


async def test_what_aliases_mean_is_told_while_the_registry_answers(ground: Ground) -> None:
    def told() -> list[str]:
        return [
            line for line in ground.client.get("/metrics").text.splitlines() if line.startswith("tidegate_registry")
        ]

    assert told() == []
    ground.marks.means = {"champion": "6", "challenger": "7"}
    now = ground.clock.now()
    ground.runs.all["a"] = DeliverySummary(
        id="a", name="support-llm", version="7", champion="6", started=now, host="h", pid=1, heartbeat=now
    )
    await ground.reconciler.once()
    common = 'model="support-llm",service="support-llm"'
    assert told() == [
        f'tidegate_registry_alias_info{{alias="challenger",{common},version="7"}} 1.0',
        f'tidegate_registry_alias_info{{alias="champion",{common},version="6"}} 1.0',
        f"tidegate_registry_delivery_running{{{common}}} 1.0",
    ]
    named = {(line.partition("{")[0], *sorted(re.findall(r"(\w+)=", line))) for line in told()}
    assert named == {(each.name, *sorted({*each.labels} - {"instance"})) for each in OF_REGISTRY}
    ground.runs.all["a"] = ground.runs.all["a"].model_copy(update={"ended": now, "outcome": "delivered"})
    ground.marks.means = {"champion": "7"}
    await ground.reconciler.once()
    assert told() == [
        f'tidegate_registry_alias_info{{alias="champion",{common},version="7"}} 1.0',
        f"tidegate_registry_delivery_running{{{common}}} 0.0",
    ]
    # Whatever it said before is no word on what it means now.
    ground.clock.elapsed += 3600
    assert told() == []
