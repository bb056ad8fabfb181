"""Count which published configs of OpenMMLab's packages `mmort export --original` traces, and write their table.

    python -m tests.tools.census_original RECORD.jsonl [--again CONFIG ...]      # hours; goes on where it ended
    python -m tests.tools.census_original RECORD.jsonl --table

All configs of the installed wheels are read, prepared and built, with weights as memory has them.  Of each kind, which
is the types of a model's parts, the smallest model is traced, and a tenth of the others drawn by a seed, each in a
process with limits of time and memory.  The others count by the smallest of their kind.  ``--again`` forgets what
the record has of configs whose paths contain a text.  tests/data/original_census.jsonl has the models that were traced
so far: a copy of it is a record to go on from.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import random
import re
import resource
import signal
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from mmort.configs.layout import DetectorConfig
from mmort.configs.packages import PACKAGES, package_of
from mmort.configs.reader import read_for_export
from mmort.configs.schema import plain_type
from mmort.contract import Preprocessing
from mmort.detect.export.options import ExportOptions
from mmort.original import check
from mmort.original.building import build
from mmort.original.exporting import ADAPTERS
from mmort.original.packages import import_package

PAGE = Path(__file__).parents[2] / "docs" / "measured" / "originals.md"
HEADING, NEXT = "\n## Published configs\n", "\n## What was tried\n"
MODULES = "mmpretrain", "mmseg", "mmpose"
SEED, SHARE = 63, 0.1
SECONDS, GIGABYTES = 240, 10
"""Limits of a process: of its own time, and of memory."""

STAGES = "read", "prepared", "built", "traced"
NOT_YET = "not tried"
TEXT = """
All that the packages' wheels hold. "Prepared" means that config and test pipeline are read, "built" that the package
makes the model, and "traced" that `mmort export --check --original CONFIG.py` takes it, for images of all sizes or, of
classifiers and poses, of the size that the test pipeline makes. There are {kinds} kinds of models, by the types of
their parts. So far {traced} models were tried; the order is the smallest of each kind, most frequent kinds first, then
a tenth of the others, drawn by seed {seed}. Models that were not tried count by their kind.

"""

Record = dict[str, Any]


def configs() -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each published config."""
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent / ".mim" / "configs"
        for path in sorted(root.glob("**/*.py")):
            if "_base_" not in path.parts:
                yield f"{module}/{path.relative_to(root).as_posix()}", path


def types(part: Any) -> str:
    """Return the types of a part of a model, or of several."""
    if isinstance(part, (list, tuple)):
        return "+".join(map(types, part))
    return plain_type(part.get("type")) if isinstance(part, Mapping) else "-"


def survey(path: Path) -> Record:
    """Return how far a config comes before it is traced."""
    record: Record = {"read": "", "prepared": "", "built": "", "kind": "", "parameters": 0}
    stage = "read"
    try:
        settings = read_for_export(path)
        package = package_of(settings)
        if package is None:
            raise ValueError("its scope is not one of the packages")
        model = DetectorConfig(settings).outer_model
        head = model.get("head") or model.get("decode_head")
        parts = model, model.get("backbone"), model.get("neck"), head, isinstance(head, Mapping) and head.get("decoder")
        record["kind"] = " ".join(map(types, parts))
        stage = "prepared"
        Preprocessing.from_config(settings)
        stage = "built"
        original = build(settings, package)
        ADAPTERS[package.module](original)
        record["parameters"] = sum(parameter.numel() for parameter in original.model.parameters())
    except (ImportError, OSError, TypeError, ValueError) as error:
        record[stage] = " ".join(str(error).split())
    return record


def in_process(function: Callable[[Path], Any], path: Path) -> Any:
    """Return what a function returns in a process of its own, or why there is nothing."""
    context = multiprocessing.get_context("fork")  # so that the packages are not imported again
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(function, path, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        late = process.exitcode == -signal.SIGXCPU
        return f"not within {SECONDS} s" if late else "its process ended"
    finally:
        process.join()


def _send(function: Callable[[Path], Any], path: Path, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30, GIGABYTES << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    sender.send(function(path))


def trace(path: Path, shape: tuple[int, int] | None = None) -> str:
    """Return why a config's model cannot be traced, "" if it can; for inputs of one shape if that is not None."""
    try:
        check(path, ExportOptions(shape=shape), progress=lambda line: None)
    except (ImportError, OSError, ValueError, MemoryError) as error:
        return " ".join(str(error).split())
    return ""


def shape_of(path: Path) -> tuple[int, int]:
    """Return the height and width that a segmentation is trained with."""
    size = read_for_export(path).get("crop_size") or (512, 512)
    return size[0], size[1]


def chosen(records: Mapping[str, Record]) -> list[str]:
    """Return the configs to trace: first the smallest of each kind, by how many configs there are, then the drawn."""
    kinds = defaultdict(list)
    for name, record in records.items():
        if ready(record):
            kinds[name.partition("/")[0], record["kind"]].append(name)
    groups = sorted(kinds.values(), key=len, reverse=True)
    smallest = [min(group, key=lambda name: (records[name]["parameters"], name)) for group in groups]
    others = (name for group in groups for name in group if name not in smallest)
    return smallest + [name for name in others if random.Random(f"{SEED} {name}").random() < SHARE]


def ready(record: Record) -> bool:
    """Return whether a config is built."""
    return not (record["read"] or record["prepared"] or record["built"])


def read(path: Path) -> dict[str, Record]:
    """Return the records by the names of their configs; the last line of each counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {record.pop("config"): record for record in map(json.loads, lines)}


def count(path: Path, records: dict[str, Record]) -> None:
    """Add what is missing to the records, and to their file."""
    for module in MODULES:
        import_package(PACKAGES[module])
    paths = dict(configs())

    def add(name: str, record: Record) -> None:
        records[name] = record
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"config": name, **record}) + "\n")

    for name in paths:
        if name not in records:
            record = in_process(_survey_without_weights, paths[name])
            if isinstance(record, str):
                record = {"read": "", "prepared": "", "built": record, "kind": "", "parameters": 0}
            add(name, record)
    names = [name for name in chosen(records) if "traced" not in records[name]]
    for index, name in enumerate(names):
        record = records[name] | {"traced": in_process(trace, paths[name])}
        if record["traced"] and name.startswith("mmseg/"):
            record["one size"] = in_process(partial(trace, shape=shape_of(paths[name])), paths[name])
        add(name, record)
        print(f"{index + 1}/{len(names)} {name}: {record['traced']}; {record.get('one size', '')}", flush=True)


def _survey_without_weights(path: Path) -> Record:
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    return survey(path)


def outcome(record: Record, of_others: str = NOT_YET) -> str:
    """Return why a model cannot be traced, "" if it can; what holds for others of its kind if nobody tried."""
    cause: str = record.get("traced", of_others)
    return f"for inputs of one size only: {cause}" if cause and record.get("one size") == "" else cause


def ends(records: Mapping[str, Record]) -> dict[str, tuple[str, str]]:
    """Return at which stage each config ends, and why: "" for those that are traced, or whose kind is."""
    of_kind = {
        (name.partition("/")[0], records[name]["kind"]): outcome(records[name])
        for name in reversed(chosen(records))  # the smallest of each kind are first, and have the last word
    }
    result = {}
    for name, record in records.items():
        stage = next((stage for stage in STAGES[:-1] if record[stage]), STAGES[-1])
        of_others = of_kind.get((name.partition("/")[0], record["kind"]), "")
        result[name] = stage, record[stage] if stage != STAGES[-1] else outcome(record, of_others)
    return result


def row(name: str, configs: Sequence[tuple[str, str]], causes: str) -> str:
    """Return a row of the table: how many configs there are, and how many pass each stage."""
    passed = [sum(STAGES.index(end) > index or not why for end, why in configs) for index in range(len(STAGES))]
    waiting = sum(why == NOT_YET for _, why in configs)
    return f"| {name} | {len(configs)} | {' | '.join(map(str, passed[1:]))} | {waiting or ''} | {causes} |"


def causes_of(configs: Sequence[tuple[str, str]]) -> str:
    """Return what ends configs before they are traced, the most frequent first."""
    counter = Counter(short(why) for _, why in configs if why not in ("", NOT_YET))
    return "; ".join(f"{count} {cause}" for cause, count in counter.most_common())


def short(cause: str) -> str:
    """Return the first clause of a cause, without paths."""
    text = re.sub(r"^(export|preprocessing): (\w+ cannot build the config's model: )?", "", cause)
    text = (
        re.sub(r"[^ ']*/[^ ':]*(:\d+)?:?", "...", text)
        .split(";")[0]
        .split(", which")[0]
        .split(" Please check")[0]
        .split("(", 1)[0]
    )
    return text.strip().replace("|", "")


def table(records: Mapping[str, Record]) -> str:
    """Return the table of packages and folders, of which those without a flaw share a row."""
    lines = ["| | configs | prepared | built | traced | not tried | what ends the others |", "|-|-|-|-|-|-|-|"]
    of_configs = ends(records)
    for module in MODULES:
        folders = defaultdict(list)
        for name, end in of_configs.items():
            package, *names = name.split("/")
            if package == module:
                folders["/".join(names[: 2 if module == "mmpose" else 1])].append(end)
        every = [end for configs in folders.values() for end in configs]
        whole = [configs for configs in folders.values() if not causes_of(configs)]
        lines.append(row(f"**{PACKAGES[module].name}**", every, ""))
        lines += [row(name, configs, causes_of(configs)) for name, configs in folders.items() if causes_of(configs)]
        lines.append(row(f"{len(whole)} other folders", [end for configs in whole for end in configs], ""))
    kinds = {(name.partition("/")[0], record["kind"]) for name, record in records.items() if ready(record)}
    traced = sum("traced" in record for record in records.values())
    return TEXT.format(kinds=len(kinds), traced=traced, seed=SEED) + "\n".join(lines) + "\n"


def main() -> None:
    """Count configs, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--again", nargs="+", default=[], metavar="CONFIG")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    records = read(arguments.record)
    if arguments.table:
        before, heading, rest = PAGE.read_text(encoding="utf-8").partition(HEADING)
        after = rest.partition(NEXT)[2]
        PAGE.write_text("".join([before, heading, table(records), NEXT, after]), encoding="utf-8")
        return
    records = {name: record for name, record in records.items() if not any(text in name for text in arguments.again)}
    count(arguments.record, records)


if __name__ == "__main__":
    main()
