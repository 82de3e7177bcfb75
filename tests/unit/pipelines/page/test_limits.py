"""How much is done for one who looks."""

from __future__ import annotations

from fakes.delivery.records import ID, delivered, summary_of
from fakes.delivery.registry import FakeLedgers
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pipelines.views.page.routes import Board, LivePage, PageLimits
from pipelines.views.page.snapshot import SnapshotReader
from tidegate.testing import FakeClock


class Ground:
    """A page on a ledger in memory."""

    def __init__(self, limits: PageLimits | None = None) -> None:
        self.ledgers, self.drawn = FakeLedgers(), 0
        clock = FakeClock()
        board = Board("support-llm", SnapshotReader("support-llm", self.ledgers, lambda: (), clock).look, clock)
        self.client = TestClient(Starlette(routes=LivePage(board, self._report, limits).routes()))

    def _report(self, _: str) -> str:
        self.drawn += 1
        return f"<h1>{self.drawn}</h1>"


def test_the_report_of_a_delivery_that_is_over_is_drawn_once() -> None:
    ground = Ground()
    ground.ledgers.all[ID], ground.ledgers.recorded[ID] = summary_of(delivered("2")), delivered("2")
    ground.client.get("/")
    assert [ground.client.get(f"/deliveries/{ID}").text for _ in range(3)] == ["<h1>1</h1>"] * 3


def test_one_that_is_not_known_to_be_over_is_drawn_again() -> None:
    ground = Ground()
    assert [ground.client.get(f"/deliveries/{ID}").text for _ in range(2)] == ["<h1>1</h1>", "<h1>2</h1>"]


def test_no_more_reports_wait_than_may() -> None:
    answer = Ground(PageLimits(reports=0)).client.get(f"/deliveries/{ID}")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")


def test_one_address_is_kept_current_in_so_many_browsers_and_no_more() -> None:
    assert Ground(PageLimits(streams_of_one=0)).client.get("/events").status_code == 503
