"""Results of the benchmarks as a record, and as tables in Markdown."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import peers
from growth import CURVES, Curve
from peers import onnxruntime, torch, torchvision

import mmort
from mmort._kernels import simd_level

HEAD = """# Speed of the operators

[`bench.py`](bench.py) writes this page; [README.md](README.md) explains it.

{machine}

A ratio is the time of the peer / the time of mmort: above 1, mmort is faster."""
EXPONENTS = "The exponent is that of the last step: 1 for a time in proportion to what grows, 2 where both sides grow."


class Measurement(NamedTuple):
    """The median seconds of a call, by contender; mmort's come first."""

    operator: str
    row: dict[str, Any]
    threads: int
    seconds: dict[str, float]

    @property
    def key(self) -> str:
        return json.dumps([self.operator, self.row, self.threads])

    def ratio(self, peer: str) -> float:
        return self.seconds[peer] / self.seconds["mmort"]


def machine() -> str:
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    packages = [f"{module.__name__} {module.__version__}" for module in (torch, torchvision, onnxruntime) if module]
    return (
        f"{model}, {os.cpu_count()} processors, {platform.system()}; Python {platform.python_version()}; "
        f"mmort {mmort.__version__} ({simd_level()}), numpy {peers.np.__version__}, {', '.join(packages)}"
    )


def read_record(path: Path) -> dict[str, Measurement]:
    """Return the measurements of former runs on this machine, with these versions."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["machine"] != machine():
        raise SystemExit(f"{path} is of {content['machine']}; remove it to begin with {machine()}")
    return {
        measurement.key: measurement for measurement in (Measurement(*values) for values in content["measurements"])
    }


def write_record(path: Path, record: dict[str, Measurement]) -> None:
    lines = ",\n".join(json.dumps(measurement) for measurement in record.values())
    path.write_text(f'{{"machine": {json.dumps(machine())}, "measurements": [\n{lines}\n]}}\n', encoding="utf-8")


def write(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "x".join(map(write, value))
    return str(value)


def describe(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {write(value)}" for name, value in row.items())


def title(operator: str) -> str:
    return operator if not operator.endswith("_ort") else f"{operator.removesuffix('_ort')}, in ONNX Runtime"


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def in_words(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def tabulate(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["-"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def summary(measurements: list[Measurement], threads: list[int]) -> str:
    """Return the smallest, median and largest ratio of each operator and peer."""
    ratios: dict[tuple[str, str], dict[int, list[float]]] = {}
    for measurement in measurements:
        for peer in list(measurement.seconds)[1:]:
            ratios.setdefault((measurement.operator, peer), {}).setdefault(measurement.threads, []).append(
                measurement.ratio(peer)
            )
    lines = []
    for (operator, peer), by_threads in ratios.items():
        cells = []
        for number in threads:
            values = by_threads.get(number, [math.nan])
            cells.append(f"{min(values):.1f} / {statistics.median(values):.1f} / {max(values):.1f}")
        lines.append([title(operator), peer, str(max(map(len, by_threads.values()))), *cells])
    head = ["operator", "peer", "rows", *(f"{in_words(number)}: min / median / max" for number in threads)]
    return tabulate(head, lines)


def rows_of(operator: str, measurements: list[Measurement], threads: list[int]) -> str:
    """Return the table of an operator's rows."""
    cells: dict[tuple[str, ...], dict[int, list[str]]] = {}
    for measurement in measurements:
        for peer in list(measurement.seconds)[1:]:
            key = (*map(write, measurement.row.values()), peer)
            values = [duration(measurement.seconds["mmort"]), f"{measurement.ratio(peer):.2f}"]
            cells.setdefault(key, {})[measurement.threads] = values
    head = [*measurements[0].row, "peer"]
    head += [text for number in threads for text in (f"mmort, {in_words(number)}", "ratio")]
    lines = [
        [*key, *(text for n in threads for text in measurement.get(n, ["", ""]))] for key, measurement in cells.items()
    ]
    return f"### {title(operator)}\n\n{tabulate(head, lines)}"


def points_of(curve: Curve, record: dict[str, Measurement]) -> list[tuple[int, Measurement]]:
    """Return the values of a curve that were measured, with the measurements, on one thread."""
    keys = ((value, Measurement(curve.operator, curve.row(value), 1, {}).key) for value in curve.values)
    return [(value, record[key]) for value, key in keys if key in record]


def growth(record: dict[str, Measurement]) -> str:
    """Return the table of the curves."""
    lines = []
    for curve in CURVES:
        points = points_of(curve, record)
        if len(points) < 2:
            continue
        (before, slower), (value, last) = points[-2:]
        exponent = math.log(last.seconds["mmort"] / slower.seconds["mmort"]) / math.log(value / before)
        shared = [(value, measurement) for value, measurement in points if len(measurement.seconds) > 1]
        ratios = " / ".join(f"{measurement.ratio(list(measurement.seconds)[1]):.1f}" for _, measurement in shared)
        times = f"{duration(points[0][1].seconds['mmort'])} to {duration(last.seconds['mmort'])}"
        sizes = f"{points[0][0]:,} to {value:,}"
        peer = list(shared[0][1].seconds)[1] if shared else ""
        lines.append([curve.operator, curve.variable, sizes, times, f"{exponent:.2f}", peer, ratios])
    return tabulate(["operator", "what grows", "from, to", "mmort", "exponent at the end", "peer", "ratios"], lines)


def page(record: dict[str, Measurement], rows: dict[str, list[dict[str, Any]]]) -> str:
    """Return the page; `rows` are those of each operator's table, curves apart."""
    threads = sorted({measurement.threads for measurement in record.values()})
    tables: dict[str, list[Measurement]] = {}
    for (operator, of_operator), number in product(rows.items(), threads):
        keys = (Measurement(operator, row, number, {}).key for row in of_operator)
        tables.setdefault(operator, []).extend(record[key] for key in keys if key in record)
    every = list(chain.from_iterable(tables.values()))
    parts = [HEAD.format(machine=machine()), "## Summary", summary(every, threads)]
    parts += ["## Growth, one thread", EXPONENTS, growth(record), "## Rows"]
    parts += [rows_of(operator, measurement, threads) for operator, measurement in tables.items() if measurement]
    return "\n\n".join(parts) + "\n"
