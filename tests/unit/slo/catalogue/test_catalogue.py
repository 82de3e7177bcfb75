"""Each line becomes an SLO whose queries ask for what somebody exports, by region, over users only."""

from __future__ import annotations

import promql_parser as promql
from fakes.metrics.slos import slo_spec

from slo.catalogue import slo_of
from slo.model import WINDOW_PLACE, EventSli
from slo.spec import KINDS, CountedBy


def selectors(query: str) -> list[promql.VectorSelector]:
    found: list[promql.VectorSelector] = []

    def keep(node: promql.Expr) -> promql.Expr:
        if isinstance(node, promql.VectorSelector):
            found.append(node)
        return node

    promql.transform(promql.parse(WINDOW_PLACE.sub("5m", query)), None, keep)
    return found


def test_who_counts_is_the_fleets_choice_unless_the_line_says_it() -> None:
    def metrics(fleets: CountedBy, **said: object) -> set[str]:
        sli = slo_of(slo_spec("errors", **said), service="chat", counted_by=fleets).sli
        assert isinstance(sli, EventSli)
        return {selector.name for selector in selectors(sli.error_query)}

    proxy, engine = metrics(CountedBy.PROXY), metrics(CountedBy.ENGINE)
    assert proxy.isdisjoint(engine)
    assert metrics(CountedBy.ENGINE, counted_by="proxy") == proxy
    assert metrics(CountedBy.PROXY, counted_by="engine") == engine


def test_alerts_name_the_region_and_where_to_read_on() -> None:
    mine = slo_spec("errors").model_copy(update={"runbook": "https://wiki/chat-down", "name": "chat-up"})
    slo = slo_of(mine, service="support-llm", counted_by=CountedBy.PROXY)
    assert slo.page
    assert slo.ticket
    assert slo.page.name == slo.ticket.name == "SupportLlmChatUp"
    assert slo.page.annotations["summary"] == "support-llm in {{ $labels.region }}: requests fail"
    assert slo.page.annotations["runbook"] == "https://wiki/chat-down"
    assert slo.page.annotations["description"] != slo.ticket.annotations["description"]


def test_nobody_is_woken_for_a_slow_start() -> None:
    slos = {kind: slo_of(slo_spec(kind), service="chat", counted_by=CountedBy.PROXY) for kind in KINDS}
    assert {kind for kind, slo in slos.items() if slo.page is None} == {"start"}
    ticket = slos["start"].ticket
    assert ticket is not None
    assert "of starts were bad lately" in ticket.annotations["description"]
