"""A panel as Grafana's SDK builds it: what looks alike is said once, for each kind of panel."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    gauge,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as look
from grafana_foundation_sdk.models import dashboard as grafana
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from slo.dashboards.conventions import DATASOURCE, ROLE_COLOURS
from slo.dashboards.model import Kind, Panel, Place, Query

Built = bargauge.Panel | gauge.Panel | heatmap.Panel | stat.Panel | statetimeline.Panel | timeseries.Panel

PROMETHEUS = grafana.DataSourceRef(type_val="prometheus", uid=f"${{{DATASOURCE}}}")
"""Whichever the reader has chosen."""

_MOMENT = {Kind.TILES, Kind.DIAL, Kind.BARS}
"""Kinds that show the last value and nothing before it."""


def drawn(panel: Panel, place: Place, number: int) -> Built:
    """The panel at its place; `number` is its id, which links and annotations know it by."""
    built = _look(panel)
    built.id(number).title(panel.title).description(panel.description).datasource(PROMETHEUS)
    built.grid_pos(grafana.GridPos(x=place.x, y=place.y, w=place.width, h=place.height))
    built.unit(panel.unit).no_value(panel.nothing)
    built.targets(
        [_target(query, letter, panel.kind) for query, letter in zip(panel.queries, "ABCDEFGH", strict=False)]
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


def _look(panel: Panel) -> Built:
    match panel.kind:
        case Kind.TILES:
            return _tiles()
        case Kind.LINES:
            return _lines(panel)
        case Kind.HEAT:
            return _heat(panel)
        case Kind.DIAL:
            return _dial()
        case Kind.BARS:
            return _bars()
        case Kind.STATES:
            return _states()


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


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _coloured(mode: grafana.FieldColorModeId) -> build.FieldColor:
    return build.FieldColor().mode(mode)


def _tiles() -> Built:
    return (
        stat.Panel()
        .reduce_options(_last())
        .color_mode(look.BigValueColorMode.BACKGROUND)
        .graph_mode(look.BigValueGraphMode.NONE)
        .text_mode(look.BigValueTextMode.VALUE_AND_NAME)
        .justify_mode(look.BigValueJustifyMode.AUTO)
        .orientation(look.VizOrientation.AUTO)
        .color_scheme(_coloured(grafana.FieldColorModeId.THRESHOLDS))
    )


def _dial() -> Built:
    return (
        gauge.Panel()
        .reduce_options(_last())
        .show_threshold_markers(True)
        .show_threshold_labels(False)
        .color_scheme(_coloured(grafana.FieldColorModeId.THRESHOLDS))
    )


def _bars() -> Built:
    return (
        bargauge.Panel()
        .reduce_options(_last())
        .orientation(look.VizOrientation.HORIZONTAL)
        .display_mode(look.BarGaugeDisplayMode.BASIC)
        .color_scheme(_coloured(grafana.FieldColorModeId.THRESHOLDS))
    )


def _states() -> Built:
    return (
        statetimeline.Panel()
        .merge_values(True)
        .row_height(0.9)
        .show_value(look.VisibilityMode.AUTO)
        .line_width(0)
        .fill_opacity(85)
        .legend(_legend(shown=False))
        .color_scheme(_coloured(grafana.FieldColorModeId.THRESHOLDS))
    )


def _heat(panel: Panel) -> Built:
    colour = (
        heatmap.HeatmapColorOptions()
        .mode(heat.HeatmapColorMode.SCHEME)
        .scheme(panel.colours)
        .steps(64)
        .fill("dark-orange")
        .exponent(0.5)
        .reverse(False)
    )
    return (
        heatmap.Panel()
        .calculate(False)
        .color(colour)
        .cell_gap(1)
        # Cells without any answer stay empty instead of pale.
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .y_axis(heatmap.YAxisConfig().unit(panel.unit).axis_placement(look.AxisPlacement.LEFT))
        .cell_values(heatmap.CellValues().unit("reqps"))
        .show_tooltip()
        .hide_legend()
    )


def _lines(panel: Panel) -> Built:
    built = (
        timeseries.Panel()
        .draw_style(look.GraphDrawStyle.LINE)
        .line_width(2)
        .fill_opacity(0)
        .show_points(look.VisibilityMode.AUTO)
        .span_nulls(False)
        .legend(_legend(shown=True))
        .tooltip(common.VizTooltipOptions().mode(look.TooltipDisplayMode.MULTI).sort(look.SortOrder.DESCENDING))
        .color_scheme(_coloured(grafana.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    if panel.stepped:
        built.line_interpolation(look.LineInterpolation.STEP_AFTER)
    if panel.steps:
        built.thresholds_style(common.GraphThresholdsStyleConfig().mode(look.GraphTresholdsStyleMode.DASHED))
    return built


def _legend(*, shown: bool) -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(look.LegendDisplayMode.LIST)
        .placement(look.LegendPlacement.BOTTOM)
        .show_legend(shown)
        .calcs([])
    )
