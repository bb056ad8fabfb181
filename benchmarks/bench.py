"""Time mmort against torch, torchvision, ONNX Runtime's own operators and numpy, on the same work.

    python benchmarks/bench.py [OPERATOR ...] [--threads 1 2] [--no-growth] [--output DIR]

Writes DIR/results.json, DIR/results.md and DIR/plots/OPERATOR.svg; DIR is this folder unless given.  Rows of former
runs stay in results.json, so that operators can be run one after another.  A row is timed only if all contenders give
the same answer.  They take turns, so that noise affects all alike.  Curves run on one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain, islice, product
from pathlib import Path

from growth import CURVES
from peers import PACKAGES, PIP_NAMES, torch
from report import Measurement, describe, duration, in_words, machine, page, read_record, title, write_record
from rows import TABLE, Function, Row
from timing import check_agreement, time_in_turns
from tqdm import tqdm

import mmort

REPEAT = 11
"""Samples of a contender, of which the median is reported."""


def measure(function: Function, row: Row, threads: int, alone: bool = False) -> Measurement | None:
    """Time the contenders of a row, or mmort alone; None if no peer is installed."""
    mmort.set_num_threads(threads)
    if torch:
        torch.set_num_threads(threads)
    contenders = [contender for contender in islice(function(**row), 1 if alone else None) if contender.run]
    if len(contenders) < 2 and not alone:
        return None
    try:
        check_agreement(contenders)
    except ValueError as error:
        raise SystemExit(f"{function.__name__}({describe(row)}): {error}") from None
    return Measurement(function.__name__, row, threads, time_in_turns(contenders, REPEAT))


def operator_of(function: Function) -> str:
    return function.__name__.removesuffix("_ort")


def measure_all(operators: list[str], threads: list[int], with_growth: bool) -> Iterator[Measurement]:
    """Time the rows of operators, and their curves."""
    chosen = [(function, row) for function in TABLE for row in TABLE[function] if operator_of(function) in operators]
    jobs = [(function, row, number, False) for number, (function, row) in product(threads, chosen)]
    for curve in CURVES if with_growth else ():
        if curve.operator in operators:
            jobs += [(curve.function, curve.row(size), 1, size > curve.compared_until) for size in curve.values]
    for job in tqdm(jobs, unit="row", dynamic_ncols=True):
        if measurement := measure(*job):
            yield measurement


def main() -> None:
    names = list(dict.fromkeys(map(operator_of, chain(TABLE, (curve.function for curve in CURVES)))))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help=f"default: all of {', '.join(names)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-growth", dest="growth", action="store_false", help="leave out the curves")
    parser.add_argument("--output", type=Path, metavar="DIR", default=Path(__file__).parent)
    options = parser.parse_args()
    if unknown := set(options.operators) - set(names):
        parser.error(f"unknown operator: {', '.join(sorted(unknown))}")
    from plots import draw  # before hours of work, if matplotlib is missing

    options.output.mkdir(exist_ok=True)
    journal = options.output / "results.json"
    record = read_record(journal)
    print(machine())
    for package, module in PACKAGES.items():
        if module is None:
            print(f"{package} is not installed: its rows are left out; pip install '{PIP_NAMES[package]}'")
    for measurement in measure_all(options.operators or names, options.threads, options.growth):
        record[measurement.key] = measurement
        write_record(journal, record)
        times = ", ".join(f"{name} {duration(seconds)}" for name, seconds in measurement.seconds.items())
        tqdm.write(
            f"{title(measurement.operator)}: {describe(measurement.row)}; {in_words(measurement.threads)}: {times}"
        )
    rows = {function.__name__: of_function for function, of_function in TABLE.items()}
    (options.output / "results.md").write_text(page(record, rows), encoding="utf-8")
    draw(options.output / "plots", record)


if __name__ == "__main__":
    main()
