"""Change one entry of a config at a time, and compare mmort with MMDetection.

    python -m tests.originals.mutations --seed 1 --count 500 [--case retinanet] [--output mutations.jsonl]
    python -m tests.originals.mutations --count 0 --output mutations.jsonl      # all, going on where that file ends

Needs what `.ci/run originals` installs; `tests.originals_2.mutations` is the same with MMDetection 2, for what
`.ci/run originals_2` installs.  Prints each defect, and a table by case; a line of the output is a mutant and its
outcome.  Exits with 1 if mmort differs silently or raises an unclear error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from tests.originals.outcomes import DEFECTS, OUTCOMES, Judge
from tests.originals.version import Version


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return how many mutants of each case have which outcome, in Markdown."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row["case"]][row["outcome"]] += 1
    total = sum(counts.values(), Counter[str]())
    lines = [f"| case | mutants | {' | '.join(OUTCOMES)} |", "|-" * (len(OUTCOMES) + 2) + "|"]
    for name, of_case in [*sorted(counts.items()), ("**all**", total)]:
        numbers = [of_case.total(), *(of_case[outcome] for outcome in OUTCOMES)]
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main(version: Version, package: str) -> int:
    """Run the command line of `package`, whose MMDetection judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the sample of each case")
    parser.add_argument("--count", type=int, default=200, help="mutants of all cases together; 0 for all")
    parser.add_argument("--case", action="append", choices=list(version.cases), help="may be repeated; by default all")
    parser.add_argument("--entry", help="only mutants whose path and value contain this text")
    parser.add_argument("--output", type=Path, help="JSON lines; mutants that are there are not run again")
    parser.add_argument("--table", action="store_true", help="only print the table of the output file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if options.output and options.output.exists():
        rows = [json.loads(line) for line in options.output.read_text().splitlines()]
    if options.table:
        print(table(rows))
        return 0
    done = {(row["case"], row["mutant"]) for row in rows}
    names = options.case or list(version.cases)
    per_case = -(-options.count // len(names))
    failed = False
    for name in names:
        try:
            judge = Judge(version, name)
        except Exception as error:  # MMDetection's too: rarely, a case before leaves its classes changed
            print(f"{name}: {error}", flush=True)
            failed = True
            continue
        chosen = [mutant for mutant in judge.mutants if options.entry is None or options.entry in mutant.text]
        if options.count and not options.entry:
            sample = random.Random(f"{options.seed} {name}")  # whatever other cases there are
            chosen = sample.sample(chosen, min(per_case, len(chosen)))
        for mutant in chosen:
            if (name, mutant.text) in done:
                continue
            start = time.perf_counter()
            outcome = judge(mutant)
            row = {
                "case": name,
                "mutant": mutant.text,
                "outcome": outcome.kind,
                "detail": outcome.detail,
                "seconds": round(time.perf_counter() - start, 2),
            }
            rows.append(row)
            if outcome.kind in DEFECTS:
                command = f"python -m {package}.mutations --case {name} --entry {json.dumps(mutant.text)}"
                print(f"{outcome.kind}: {outcome.detail}\n    {command}", flush=True)
            elif options.entry:
                print(f"{outcome.kind}: {mutant.text}: {outcome.detail}", flush=True)
            if options.output:
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(rows))
    return int(failed or any(row["outcome"] in DEFECTS for row in rows))


if __name__ == "__main__":
    from tests.originals.version_3 import VERSION

    sys.exit(main(VERSION, "tests.originals"))
