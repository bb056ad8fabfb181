"""Search for false alarms: prove correct files of all small detectors with random weights.  Run by hand, for hours.

    python -m tests.tools.check_proofs RECORD [NAME ...] [--seeds N] [--first N]

Each small detector is exported once, with the image that ships and weights of which no two are alike; then it gets
other weights, N times, and so does its file.  Seeds are of two kinds by turns: the weights that torch begins training
with, and the same times powers of two between 1/4 and 4, a factor for each tensor; both with random statistics of
normalization.  RECORD gets a line of JSON for each file; what it has is not run again.  Detectors of objects in words
are left out by default, as their inputs need texts.  A file that is refused is exported once more from the new weights:
only if that is refused too, it is a false alarm.  Exit code 1 if there is any.
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
from tests.detect import text_cases
from tests.detect.small_exports import Fill, SmallExport, small_cases


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
    factors = [row.factor for row in report.rows if getattr(row, "factor", None) is not None]
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


def unlike(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights of which no two are alike."""
    generator = torch.Generator().manual_seed(0)
    noise = {name: torch.randn(tensor.shape, generator=generator) for name, tensor in state.items()}
    return {
        name: tensor * (1 + 0.1 * noise[name].tanh()) + 0.01 * noise[name].abs()  # variances stay above 0
        if tensor.is_floating_point()
        else tensor
        for name, tensor in state.items()
    }


def check(name: str, seeds: list[int], record: Path) -> None:
    """Prove the files of a detector with the weights of some seeds."""
    model, _ = small_cases()[name]
    with tempfile.TemporaryDirectory() as folder:
        first = unlike(weights_of(model, 0))
        small = SmallExport(model, lambda detector: detector.load_state_dict(first), Path(folder, "first.onnx"))
        try:
            small.write()
            exchangeable = True
        except ValueError:
            exchangeable = False
        for seed in seeds:
            begin = time.process_time()
            state = weights_of(model, seed)
            report: dict[str, Any] = {"problems": ["not exchanged"]}
            if exchangeable:
                small.reweighted(Path(folder, "other.onnx"), state)
                report = outcome(small.prove(Path(folder, "other.onnx")))
            exchanged = not report["problems"]
            if not exchanged:
                report = exported_anew(model, state, Path(folder, "again.onnx"))
            line = {"name": name, "seed": seed, "seconds": round(time.process_time() - begin, 1), **report}
            with record.open("a") as file:
                file.write(json.dumps({**line, "exported": not exchanged}) + "\n")
            print(f"{name} {seed}: {'ALARM' if report['problems'] else 'ok'} {report.get('factor', 0):.2f}", flush=True)
            if report["problems"]:
                print("\n".join(report["problems"]), flush=True)


def main() -> int:
    """Check the detectors of the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    arguments = parser.parse_args()
    lines = list(map(json.loads, arguments.record.read_text().splitlines())) if arguments.record.exists() else []
    done = {(line["name"], line["seed"]) for line in lines}
    for name in arguments.names or [name for name in small_cases() if name not in text_cases.MODELS]:
        all_seeds = range(arguments.first, arguments.first + arguments.seeds)
        seeds = [seed for seed in all_seeds if (name, seed) not in done]
        if seeds:
            check(name, seeds, arguments.record)
    lines = list(map(json.loads, arguments.record.read_text().splitlines()))
    alarms = [line for line in lines if line["problems"]]
    largest = max(line.get("factor", 0) for line in lines)
    print(f"{len(lines)} files, {len(alarms)} false alarms, largest factor {largest:.1f}")
    return bool(alarms)


if __name__ == "__main__":
    sys.exit(main())
