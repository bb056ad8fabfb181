"""Plots of growth: an SVG for each operator, with a panel for each size that grows."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from growth import CURVES
from matplotlib import pyplot as plt
from report import Measurement, points_of

COLOURS = {"mmort": "#1f5fbf"}
PEER_COLOURS = "#c92a2a", "#2b8a3e", "#616e7c"


def draw(folder: Path, record: dict[str, Measurement]) -> None:
    """Write OPERATOR.svg for each operator with curves."""
    mpl.use("svg")
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mmort", "font.size": 9, "axes.spines.top": False})
    plt.rcParams.update({"axes.spines.right": False, "font.family": "sans-serif"})
    folder.mkdir(exist_ok=True)
    for operator, curves in groupby(CURVES, key=lambda curve: curve.operator):
        plotted = [(curve, points) for curve in curves if len(points := points_of(curve, record)) > 1]
        if not plotted:
            continue
        figure, panels = plt.subplots(
            1, len(plotted), figsize=(0.6 + 2.4 * len(plotted), 2.6), squeeze=False, sharey=True, layout="constrained"
        )
        for panel, (curve, points) in zip(panels[0], plotted, strict=True):
            names = list(dict.fromkeys(name for _, measurement in points for name in measurement.seconds))
            for index, name in enumerate(names):
                line = [(value, 1e3 * seconds[name]) for value, (*_, seconds) in points if name in seconds]
                colour = COLOURS.get(name) or PEER_COLOURS[(index - 1) % len(PEER_COLOURS)]
                panel.loglog(*zip(*line, strict=True), "o-", label=name, color=colour, markersize=3, linewidth=1.3)
            panel.set_xlabel(curve.variable)
            panel.minorticks_off()
            panel.grid(alpha=0.3, linewidth=0.5)
        panels[0][0].set_ylabel(f"{operator}, milliseconds")
        lines = {line.get_label(): line for panel in panels[0] for line in panel.get_lines()}
        figure.legend(lines.values(), lines.keys(), loc="outside upper left", ncols=len(lines), frameon=False)
        figure.savefig(folder / f"{operator}.svg", metadata={"Date": None})
        plt.close(figure)
