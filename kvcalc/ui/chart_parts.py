"""What the charts share: roles instead of colours, axes, the label layer, and filling a ready spec with data.

A chart is built once by Altair and kept as a dict; a rerun puts new rows into it. Colours are role names that the
browser's theme resolves, so a theme switch needs no rerun.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

Spec = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]

ROLES = ["accent", "ink", "mid", "soft", "warn", "wash", "ground", "faint"]
"""In the order of ``chartCategoricalColors`` in .streamlit/config.toml."""
NARROW_PX, MIDDLE_PX = 520, 820
"""Below the first plot width the short labels are shown; between the two, long labels placed for less room. [pixels]"""
SIZES = ((0, 290.0), (1, 530.0), (2, 860.0))
"""(size class, nominal plot width) that labels are placed for: a phone, a small window, a desktop. [pixels]"""
PLOT_HEIGHT = 232.0
SIZE_CLASS = f"(width < {NARROW_PX} ? 0 : width < {MIDDLE_PX} ? 1 : 2)"
"""Which of them the browser has drawn, as a Vega expression."""
HEIGHT = 310
_TEXT_SIZE = 12


def ink(role: str) -> alt.ExprRef:
    """A role's colour, looked up in the browser."""
    return alt.ExprRef(f"scale('color', '{role}')")


def source(name: str) -> alt.Chart:
    """A layer over rows that ``fill`` will put in."""
    return alt.Chart(alt.NamedData(name=name))


def frame(x_title: str, y_title: str, *, log: bool) -> alt.Chart:
    """An invisible layer that owns both axes; ``set_axes`` gives it domains and ticks."""
    look: dict[str, Any] = {
        "labelColor": ink("mid"),
        "titleColor": ink("mid"),
        "labelFontSize": _TEXT_SIZE,
        "titleFontSize": _TEXT_SIZE,
        "titleFontWeight": 400,
        "ticks": False,
        "format": ",~f",
    }
    axis_x = alt.Axis(
        title=x_title,
        grid=False,
        values=[1],
        domain=False,
        titlePadding=8,
        labelPadding=6,
        labelFlush=True,
        labelOverlap=False,
        **look,
    )
    axis_y = alt.Axis(
        title=y_title,
        grid=True,
        gridColor=ink("faint"),
        values=[1],
        domain=False,
        titleAngle=0,
        titleAlign="left",
        titleAnchor="end",
        titleY=-12,
        titleX=0,
        labelPadding=6,
        **look,
    )
    points: alt.Chart = source("frame").mark_point(opacity=0)
    return points.encode(x=alt.X("x:Q", scale=_scale(log), axis=axis_x), y=alt.Y("y:Q", scale=_scale(log), axis=axis_y))


def _scale(log: bool) -> alt.Scale:
    if log:
        return alt.Scale(type="log", domain=[1, 2], nice=False)
    return alt.Scale(type="linear", domain=[1, 2], nice=False, zero=False)


def disc(rows: str, x: alt.X) -> alt.Chart:
    """The reader's own point, on every chart the same."""
    look: dict[str, Any] = {"fill": ink("ink"), "stroke": ink("ground"), "strokeWidth": 2}
    point: alt.Chart = source(rows).mark_point(shape="circle", size=130, filled=True, opacity=1, **look)
    shown: alt.Chart = point.encode(x=x, y="y:Q")
    return shown


def label_layers() -> list[alt.Chart]:
    """The words of a chart: one layer of text and one of halos under it, both driven by the rows of ``place``."""
    shown = alt.ExprRef(f"{SIZE_CLASS} == datum.n ? datum.t : ''")
    look: dict[str, Any] = {
        "text": shown,
        "dx": alt.ExprRef("datum.dx"),
        "dy": alt.ExprRef("datum.dy"),
        "align": alt.ExprRef("datum.a"),
        "baseline": "middle",
        "fontSize": alt.ExprRef("datum.s"),
        "fontWeight": alt.ExprRef("datum.w"),
    }
    halo = source("labels").mark_text(
        **look,
        stroke=ink("ground"),
        fill=ink("ground"),
        strokeWidth=4,
        strokeJoin="round",
        strokeOpacity=alt.ExprRef("datum.h"),
        fillOpacity=alt.ExprRef("datum.h"),
    )
    text = source("labels").mark_text(**look)
    color = alt.Color("role:N", scale=alt.Scale(domain=ROLES), legend=None)
    return [halo.encode(x="x:Q", y="y:Q"), text.encode(x="x:Q", y="y:Q", color=color)]


def finish(layers: Sequence[alt.Chart], *, height: int = HEIGHT) -> Spec:
    """The chart as a dict, ready to be filled."""
    chart = alt.layer(*layers).properties(height=height).configure_view(stroke=None)
    # A test holds the charts against the schema; at run time that would double the first page's work.
    spec: Spec = chart.to_dict(validate=False)
    # Streamlit sets the size itself; Altair's own defaults would only travel along.
    spec["config"] = {"view": {"stroke": None}}
    return spec


def set_axes(
    spec: Spec,
    *,
    x_domain: tuple[float, float],
    y_domain: tuple[float, float],
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    narrow_x_ticks: Sequence[float] | None = None,
    x_title: str | None = None,
    y_title: str | None = None,
) -> Spec:
    """The spec with new domains and ticks; the one given is not changed."""
    head = copy.deepcopy(spec["layer"][0])
    x, y = head["encoding"]["x"], head["encoding"]["y"]
    x["scale"]["domain"], y["scale"]["domain"] = list(x_domain), list(y_domain)
    x["axis"]["values"], y["axis"]["values"] = list(x_ticks), list(y_ticks)
    if x_title is not None:
        x["axis"]["title"] = x_title
    if y_title is not None:
        y["axis"]["title"] = y_title
    if narrow_x_ticks is not None:
        dropped = [tick for tick in x_ticks if tick not in narrow_x_ticks]
        x["axis"]["labelExpr"] = f"width < {NARROW_PX} && indexof({dropped}, datum.value) >= 0 ? '' : datum.label"
    return {**spec, "layer": [head, *spec["layer"][1:]]}


def set_domain(spec: Spec, domain: tuple[float, float]) -> Spec:
    """The spec of a chart without axes, with a new x domain."""
    head = copy.deepcopy(spec["layer"][0])
    head["encoding"]["x"]["scale"]["domain"] = list(domain)
    return {**spec, "layer": [head, *spec["layer"][1:]]}


def fill(spec: Spec, data: Mapping[str, Rows]) -> Spec:
    """The spec with its named rows put in, inline as JSON: a named dataset would travel as an Arrow block."""
    layers = [{**layer, "data": {"values": list(data.get(layer["data"]["name"], ()))}} for layer in spec["layer"]]
    return {**spec, "layer": layers}
