"""Search for false alarms: prove correct files of all small detectors with random weights.  Run by hand, for hours.

    python -m tests.tools.check_proofs RECORD [NAME ...] [--seeds N]

Each small detector is exported once, with the image that ships; then it gets other weights, N times, and so does its
file.  Seeds are of two kinds by turns: the weights that torch begins training with, and the same times powers of two
between 1/4 and 4, a factor for each tensor; both with random statistics of normalization.  RECORD gets a line of JSON
for each file; what it has is not run again.  A file that is refused is exported once more from the new weights: only if
that is refused too, it is a false alarm.  Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from mmort.detect import build
from mmort.onnx import Report
from tests.tools.small_cases import Fill, small_cases
from tests.tools.small_exports import SmallExport


def random_fill(seed: int) -> Fill:
    """Return what gives a detector random weights."""

    def fill(detector: torch.nn.Module) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, tensor in detector.state_dict().items():
            if not tensor.is_floating_point():
                continue
            if name.endswith("running_mean"):
                tensor.normal_(generator=generator)
            elif name.endswith("running_var"):
                tensor.uniform_(0.25, 4, generator=generator)
            elif seed % 2:
                tensor.mul_(2.0 ** int(torch.randint(-2, 3, (), generator=generator)))

    return fill


def weights_of(model: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Return the weights of a seed."""
    torch.manual_seed(seed)
    detector = build({"model": model})
    random_fill(seed)(detector)
    return {name: tensor.detach().clone() for name, tensor in detector.state_dict().items()}


def outcome(report: Report) -> dict[str, Any]:
    """Return the largest factor of a report and the rows that differ."""
    factors = [row.factor for row in report.rows if hasattr(row, "factor")]
    problems = [" ".join(row.cells()) + " " + row.problem for row in report.rows if row.problem]
    notes = sorted({row.note for row in report.rows if getattr(row, "note", "")})
    return {
        "rows": len(report.rows),
        "numbers": len(factors),
        "factor": max(factors, default=0),
        "problems": problems,
        "notes": notes,
    }


def exported_anew(model: dict[str, Any], state: dict[str, torch.Tensor], path: Path) -> dict[str, Any]:
    """Export a detector with these weights; return the outcome of its proof."""
    again = SmallExport(model, lambda detector: detector.load_state_dict(state), path)
    try:
        return outcome(again.write())
    except ValueError as error:
        return {"problems": str(error).splitlines()}


def check(name: str, seeds: list[int], record: Path) -> None:
    """Prove the files of a detector with the weights of some seeds."""
    model, _ = small_cases()[name]
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder, "first.onnx")
        begin = time.perf_counter()
        state = weights_of(model, seeds[0])
        small = SmallExport(model, lambda detector: detector.load_state_dict(state), first)
        for seed in seeds:
            again: dict[str, Any] = {}
            unknown: list[str] = []
            try:
                if seed == seeds[0]:
                    report = outcome(small.write())
                else:
                    state = weights_of(model, seed)
                    unknown = small.reweighted(Path(folder, "other.onnx"), state)
                    small.path = Path(folder, "other.onnx")
                    report = outcome(small.prove(small.path))
                    if report["problems"]:
                        again = {"exchanged": report}
                        report = exported_anew(model, state, Path(folder, "again.onnx"))
            except ValueError as error:
                report = {"problems": str(error).splitlines()}
            line = {"name": name, "seed": seed, "seconds": round(time.perf_counter() - begin, 1), **report, **again}
            with record.open("a") as file:
                file.write(json.dumps({**line, "unknown": len(unknown)}) + "\n")
            print(f"{name} {seed}: {'ALARM' if report['problems'] else 'ok'} {report.get('factor', 0):.2f}", flush=True)
            if report["problems"]:
                print("\n".join(report["problems"]), flush=True)
            if not first.exists():
                break
            begin = time.perf_counter()


def main() -> int:
    """Check the detectors of the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    lines = list(map(json.loads, arguments.record.read_text().splitlines())) if arguments.record.exists() else []
    done = {(line["name"], line["seed"]) for line in lines}
    for name in arguments.names or small_cases():
        seeds = [seed for seed in range(arguments.seeds) if (name, seed) not in done]
        if seeds:
            check(name, seeds, arguments.record)
    lines = list(map(json.loads, arguments.record.read_text().splitlines()))
    alarms = [line for line in lines if line["problems"]]
    largest = max(line.get("factor", 0) for line in lines)
    print(f"{len(lines)} files, {len(alarms)} false alarms, largest factor {largest:.1f}")
    return bool(alarms)


if __name__ == "__main__":
    sys.exit(main())
