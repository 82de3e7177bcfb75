"""How each kind of panel looks, as Grafana's SDK builds it."""

from __future__ import annotations

from grafana_foundation_sdk.builders import bargauge, common, gauge, heatmap, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as look
from grafana_foundation_sdk.models import dashboard as grafana
from grafana_foundation_sdk.models import heatmap as heat

from slo.dashboards.model import Kind, Panel

Built = bargauge.Panel | gauge.Panel | heatmap.Panel | stat.Panel | statetimeline.Panel | timeseries.Panel


def look_of(panel: Panel) -> Built:
    """A panel without its data: no title, no place, no query yet."""
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
        drawn = look.GraphTresholdsStyleMode.AREA if panel.banded else look.GraphTresholdsStyleMode.DASHED
        built.thresholds_style(common.GraphThresholdsStyleConfig().mode(drawn))
    return built


def _legend(*, shown: bool) -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(look.LegendDisplayMode.LIST)
        .placement(look.LegendPlacement.BOTTOM)
        .show_legend(shown)
        .calcs([])
    )
