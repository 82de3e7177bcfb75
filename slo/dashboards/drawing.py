"""A panel as Grafana's SDK builds it: its queries, colours and place, whatever its kind."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models import dashboard as grafana
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from slo.dashboards.conventions import DATASOURCE, ROLE_COLOURS
from slo.dashboards.looks import Built, look_of
from slo.dashboards.model import Kind, Panel, Place, Query

PROMETHEUS = grafana.DataSourceRef(type_val="prometheus", uid=f"${{{DATASOURCE}}}")
"""Whichever the reader has chosen."""

_MOMENT = {Kind.TILES, Kind.DIAL, Kind.BARS}
"""Kinds that show the last value and nothing before it."""


def drawn(panel: Panel, place: Place, number: int) -> Built:
    """The panel at its place; `number` is its id, which links and annotations know it by."""
    built = look_of(panel)
    built.id(number).title(panel.title).description(panel.description).datasource(PROMETHEUS)
    built.grid_pos(grafana.GridPos(x=place.x, y=place.y, w=place.width, h=place.height))
    built.unit(panel.unit).no_value(panel.nothing)
    built.targets(
        [_target(query, letter, panel.kind) for query, letter in zip(panel.queries, ascii_uppercase, strict=False)]
    )
    if panel.decimals is not None:
        built.decimals(panel.decimals)
    if panel.low is not None:
        built.min(panel.low)
    if panel.high is not None:
        built.max(panel.high)
    if panel.states:
        built.mappings([_mapping(panel)])
    for beginning, colour in _colours(panel).items():
        shades = {"mode": grafana.FieldColorModeId.SHADES.value, "fixedColor": colour}
        built.override_by_regexp(f"/^{beginning}/", [grafana.DynamicConfigValue(id_val="color", value=shades)])
    # Grafana draws thresholds only where there is a colour for the lowest value.
    steps = [grafana.Threshold(value=step.since, color=step.colour) for step in panel.steps]
    built.thresholds(
        build.ThresholdsConfig()
        .mode(grafana.ThresholdsMode.ABSOLUTE)
        .steps(steps or [grafana.Threshold(value=None, color="green")])
    )
    return built


def _colours(panel: Panel) -> Mapping[str, str]:
    return ROLE_COLOURS if panel.kind is Kind.LINES else panel.colour_of


def _target(query: Query, letter: str, kind: Kind) -> prometheus.Dataquery:
    target = prometheus.Dataquery().ref_id(letter).expr(query.expr).legend_format(query.legend).datasource(PROMETHEUS)
    target.format(PromQueryFormat.HEATMAP if query.heat else PromQueryFormat.TIME_SERIES)
    return target.instant() if kind in _MOMENT else target.range()


def _mapping(panel: Panel) -> grafana.ValueMap:
    words = {
        f"{value:g}": grafana.ValueMappingResult(text=state.word, color=state.colour, index=index)
        for index, (value, state) in enumerate(panel.states.items())
    }
    return grafana.ValueMap(options=words)
