"""Parts state what they read of a config; only the registry and a family's own file know the family."""

import ast
import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import pytest

import mmort.detect
from mmort.detect.entries import Parts, Schema, default, part
from mmort.detect.registry import FAMILIES, PARTS

ROOT = Path(mmort.detect.__file__).parent


class Coder:
    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        scale: float = 1.0

    def __init__(self, entries):
        self.entries = entries


class Head:
    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        channels: int
        norm_cfg: dict = default({"type": "BN"})
        coder: Coder = part("coder", default={"type": "Coder", "scale": 2.0})
        extra: Coder | None = part("coder", default=None)
        stages: list[Coder] | None = part("coder", default=None, count="channels")

        ignored: ClassVar = {"momentum": "training only"}

    def __init__(self, entries):
        self.entries = entries


TOY = Parts({"head": {"Head": Head}, "coder": {"Coder": Coder}})


def test_entries_arrive_and_parts_are_built_first():
    entries = TOY.build("head", {"type": "mmdet.Head", "channels": 3, "extra": {"type": "Coder", "scale": 5}}).entries
    assert entries.channels == 3
    assert entries.norm_cfg == {"type": "BN"}
    assert entries.coder.entries.scale == 2
    assert entries.extra.entries.scale == 5
    assert entries.stages is None


def test_one_config_makes_all_parts_of_a_list():
    one = {"type": "Coder", "scale": 4}
    entries = TOY.build("head", {"type": "Head", "channels": 3, "stages": one}).entries
    assert [coder.entries.scale for coder in entries.stages] == [4, 4, 4]
    assert len(set(map(id, entries.stages))) == 3
    entries = TOY.build("head", {"type": "Head", "channels": 3, "stages": [one, {"type": "Coder"}]}).entries
    assert [coder.entries.scale for coder in entries.stages] == [4, 1]


def test_ignored_entries_and_those_that_are_none_are_accepted():
    ignored = {"momentum": 0.1, "init_cfg": {}, "train_cfg": {}, "loss_cls": {}, "plugins": None}
    assert TOY.build("head", {"type": "Head", "channels": 3, **ignored}).entries.channels == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"type": "Head", "channels": 3, "b": 1, "a": 2},
            "head 'Head' with b, a is not supported; supported entries: ",
        ),
        ({"type": "Head"}, "head 'Head' must have channels"),
        ({"type": "Other"}, "head 'Other' is not supported; supported: Head"),
        ({"channels": 3}, "head 'None' is not supported; supported: Head"),
        ([], "head must be one dict, got list"),
        ({"type": "Head", "channels": 3, "coder": {"type": "Coder", "size": 1}}, "coder 'Coder' with size is not"),
        ({"type": "Head", "channels": 3, "coder": {"type": "Code"}}, "coder 'Code' is not supported"),
    ],
)
def test_other_entries_are_refused_by_name(config, message):
    with pytest.raises(ValueError, match=r"detect\.build: ") as caught:
        TOY.build("head", config)
    assert str(caught.value).startswith(f"detect.build: {message}")


def registered():
    """Return every class of the registry that has `Entries`, with the heads that families name themselves."""
    classes = [each for types in PARTS.types.values() for each in types.values()]
    return {*classes, *(family.head for family in FAMILIES.values() if hasattr(family, "head"))}


@pytest.mark.parametrize("part_class", sorted(registered(), key=lambda each: each.__name__))
def test_parts_read_what_they_state(part_class):
    """A stated entry that no code of the class, or of its bases, reads would be accepted in silence."""
    source = "".join(inspect.getsource(inspect.getmodule(each)) for each in part_class.__mro__[:-1] if _ours(each))
    entries = fields(part_class.Entries)
    counts = {entry.metadata["part"].count for entry in entries if "part" in entry.metadata}
    # `LayerEntries.layer` reads these three.
    layer = {"conv_cfg", "norm_cfg", "act_cfg"} if "entries.layer" in source else set()
    unread = {entry.name for entry in entries if f"entries.{entry.name}" not in source}
    assert unread <= counts | layer


def _ours(each):
    return each.__module__.startswith("mmort.detect")


def imports(path):
    """Return the modules of mmort.detect that a file imports."""
    statements = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
    return {statement.module for statement in statements if statement.module.startswith("mmort.detect")}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_registry_knows_the_families(path):
    if path != ROOT / "registry.py" and path.parent != ROOT / "families":
        assert not [module for module in imports(path) if module.startswith("mmort.detect.families")]
    if ROOT / "parts" in path.parents or path.parent == ROOT / "families":
        assert not imports(path) & {"mmort.detect.registry", "mmort.detect.loading"}
