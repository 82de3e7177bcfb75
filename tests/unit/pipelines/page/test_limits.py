"""How much is done for one who looks."""

from __future__ import annotations

from fakes.clock import FakeClock
from fakes.deliveries import delivered
from fakes.seen import ID, summary_of
from fakes.triggers import FakeLedgers
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pipelines.page.board import Board
from pipelines.page.look import Looker
from pipelines.page.routes import Limits, LivePage


class Ground:
    """A page on a ledger in memory."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.ledgers, self.drawn = FakeLedgers(), 0
        clock = FakeClock()
        board = Board("support-llm", Looker("support-llm", self.ledgers, lambda: (), clock).look, clock)
        self.client = TestClient(Starlette(routes=LivePage(board, self._report, limits).routes()))

    def _report(self, _: str) -> str:
        self.drawn += 1
        return f"<h1>{self.drawn}</h1>"


def test_the_report_of_a_delivery_that_is_over_is_drawn_once() -> None:
    ground = Ground()
    ground.ledgers.all[ID], ground.ledgers.recorded[ID] = summary_of(delivered("2")), delivered("2")
    ground.client.get("/")
    assert [ground.client.get(f"/deliveries/{ID}").text for _ in range(3)] == ["<h1>1</h1>"] * 3


def test_one_that_is_not_known_to_be_over_is_drawn_anew() -> None:
    ground = Ground()
    assert [ground.client.get(f"/deliveries/{ID}").text for _ in range(2)] == ["<h1>1</h1>", "<h1>2</h1>"]


def test_no_more_reports_wait_than_may() -> None:
    answer = Ground(Limits(reports=0)).client.get(f"/deliveries/{ID}")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")


def test_one_address_is_kept_current_in_so_many_browsers_and_no_more() -> None:
    assert Ground(Limits(streams_of_one=0)).client.get("/events").status_code == 503
