"""Parts declare the entries that they read and are registered once; only families import families."""

import ast
import functools
import inspect
import re
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

import pytest

import mmort.detect
from mmort.detect.entries import AROUND, DETECTOR, Parts, Schema, default, nested, only, part, read_entries
from mmort.detect.loading import PARTS
from tests.detect import dense_cases

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


class Pair:
    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        first: Coder = part("coder")
        second: Coder = part("coder")

    def __init__(self, entries):
        self.entries = entries


TOY = Parts({"head": {"Head": Head, "Pair": Pair}, "coder": {"Coder": Coder}})


def test_entries_arrive_and_parts_are_built_first():
    entries = TOY.build("head", {"type": "mmdet.Head", "channels": 3, "extra": {"type": "Coder", "scale": 5}}).entries
    assert entries.channels == 3
    assert entries.norm_cfg == {"type": "BN"}
    assert entries.coder.entries.scale == 2
    assert entries.extra.entries.scale == 5
    assert entries.stages is None


def test_one_config_makes_all_parts_of_a_list():
    coder = {"type": "Coder", "scale": 4}
    entries = TOY.build("head", {"type": "Head", "channels": 3, "stages": coder}).entries
    assert [stage.entries.scale for stage in entries.stages] == [4, 4, 4]
    assert len(set(map(id, entries.stages))) == 3
    entries = TOY.build("head", {"type": "Head", "channels": 2, "stages": [coder, {"type": "Coder"}]}).entries
    assert [stage.entries.scale for stage in entries.stages] == [4, 1]
    with pytest.raises(ValueError, match="stages of head 'Head' must have channels = 3 entries, got 1"):
        TOY.build("head", {"type": "Head", "channels": 3, "stages": [coder]})


def test_ignored_entries_are_accepted():
    ignored = {"momentum": 0.1, "init_cfg": {}, "train_cfg": {}, "loss_cls": {}}
    assert TOY.build("head", {"type": "Head", "channels": 3, **ignored}).entries.channels == 3


def test_unknown_entries_that_are_none_are_refused():
    """Where they are left out, MMDetection may do something: MMCV's ``ConvModule`` has an activation."""
    with pytest.raises(ValueError, match="head 'Head' with plugins is not supported"):
        TOY.build("head", {"type": "Head", "channels": 3, "plugins": None})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"type": "Head", "channels": 3, "b": 1, "a": 2},
            "head 'Head' with b, a is not supported; supported entries: ",
        ),
        ({"type": "Head"}, "head 'Head' must have channels"),
        ({"type": "Pair", "first": {"type": "Coder"}}, "head 'Pair' must have second"),
        (
            {"type": "Pair", "first": None, "second": {"type": "Coder"}},
            "first of head 'Pair' must be a dict, got NoneTy",
        ),
        ({"type": "Other"}, "head 'Other' is not supported; supported: Head"),
        ({"channels": 3}, "head 'None' is not supported; supported: Head"),
        ([], "head must be a dict, got list"),
        ({"type": "Head", "channels": 3, "coder": {"type": "Coder", "size": 1}}, "coder 'Coder' with size is not"),
        ({"type": "Head", "channels": 3, "coder": {"type": "Code"}}, "coder 'Code' is not supported"),
    ],
)
def test_other_entries_are_refused_by_name(config, message):
    with pytest.raises(ValueError, match=r"detect\.build: ") as caught:
        TOY.build("head", config)
    assert str(caught.value).startswith(f"detect.build: {message}")


@dataclass(frozen=True, kw_only=True)
class NMS(Schema):
    iou_threshold: float = 0.5


@dataclass(frozen=True, kw_only=True)
class TestCfg(Schema):
    __test__ = False

    nms: NMS = nested(NMS)
    score_thr: float
    rpn: NMS | None = nested(NMS, "stage one", default=None)

    ignored: ClassVar = {"debug": "prints"}


def test_nested_entries_arrive():
    entries = read_entries("test_cfg", TestCfg, {"score_thr": 0.1, "debug": 1, "nms": {"iou_threshold": 0.7}})
    assert entries == TestCfg(score_thr=0.1, nms=NMS(iou_threshold=0.7))
    assert read_entries("test_cfg", TestCfg, {"score_thr": 0.1, "nms": {}, "rpn": {}}).rpn == NMS()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"score_thre": 0.1, "nms": {}}, "test_cfg with score_thre (did you mean score_thr?) is not supported; "),
        ({"score_thr": 0.1}, "test_cfg must have nms"),
        ({"score_thr": 0.1, "nms": 0.5}, "test_cfg.nms must be a dict, got float"),
        ({"score_thr": 0.1, "nms": {"iou_thresh": 1}}, "test_cfg.nms with iou_thresh (did you mean iou_threshold?) is"),
        ({"score_thr": 0.1, "nms": {}, "rpn": {"x": 1}}, "stage one with x is not supported; supported entries: iou_"),
    ],
)
def test_wrong_nested_entries_are_named(config, message):
    with pytest.raises(ValueError, match=r"detect\.build: ") as caught:
        read_entries("test_cfg", TestCfg, config)
    assert str(caught.value).startswith(f"detect.build: {message}")


@dataclass(frozen=True, kw_only=True)
class Renamed(Schema):
    types = ("Layer",)

    norm: NMS = nested(NMS, default={"iou_threshold": 0.25})
    bias: bool = only(True)
    cross: bool = only(False, required=True)
    width: "int" = 4  # as text, as all annotations of the package are
    height: "int | None" = 4

    @classmethod
    def respelled(cls, name, config):
        return {"width" if key == "wide" else key: value for key, value in config.items()}

    def check(self, name):
        if self.width == self.height:
            raise ValueError(f"{name} is a square")


def test_defaults_are_read_and_older_names_understood():
    entries = read_entries("layer", Renamed, {"type": "mmdet.Layer", "cross": False, "wide": 5, "bias": True})
    assert entries == Renamed(norm=NMS(iou_threshold=0.25), bias=True, cross=False, width=5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "layer must have cross=False"),
        ({"cross": True}, "cross of layer must be False, got True"),
        ({"cross": False, "bias": False}, "bias of layer must be True, got False"),
        ({"cross": False, "type": "Other"}, "layer 'Other' is not supported; supported: Layer"),
        ({"cross": False, "norm": None}, "layer.norm must be a dict, got NoneType"),
        ({"cross": False, "width": None}, "width of layer must be an integer, got None"),
    ],
)
def test_values_that_are_not_supported_are_named(config, message):
    with pytest.raises(ValueError, match=rf"^detect\.build: {re.escape(message)}$"):
        read_entries("layer", Renamed, config)


def test_entries_that_contradict_each_other_are_refused():
    assert read_entries("layer", Renamed, {"cross": False, "width": 3, "height": None}).height is None
    with pytest.raises(ValueError, match="layer is a square"):
        read_entries("layer", Renamed, {"cross": False})


def part_classes():
    """Return every class with `Entries`, whether the registry or a family's file names it."""
    modules = [module for name, module in sys.modules.items() if name.startswith("mmort.detect.")]
    members = [member for module in modules for member in vars(module).values()]
    return {member for member in members if inspect.isclass(member) and hasattr(member, "Entries")}


def test_all_part_classes_are_found():
    kinds = (types for kind, types in PARTS.types.items() if kind not in (DETECTOR, AROUND))
    assert {part_class for types in kinds for part_class in types.values()} < part_classes()


def test_a_name_is_registered_once():
    parts = Parts({})
    assert parts.register("neck", "FPN")(Renamed) is Renamed is parts.types["neck"]["FPN"]
    with pytest.raises(ValueError, match="neck 'FPN' is registered already, as Renamed"):
        parts.register("neck", "FPN")(Renamed)
    parts.register("neck", "FPN", coder="box coder")(Renamed)
    with pytest.raises(ValueError, match="neck 'FPN' is registered already, as Renamed"):
        parts.register("neck", "FPN", coder="box coder")(Renamed)


@pytest.mark.parametrize("part_class", sorted(part_classes(), key=lambda part_class: part_class.__name__))
def test_parts_read_the_entries_that_they_declare(part_class):
    """A declared entry that no code of the class, its entries, or their bases, reads would be accepted in silence."""
    bases = [*part_class.__mro__, *part_class.Entries.__mro__]
    modules = {inspect.getmodule(base) for base in bases if base.__module__.startswith("mmort.detect.")}
    source = "".join(inspect.getsource(module) for module in modules)
    entries = [entry for entry in fields(part_class.Entries) if not has_one_value(entry)]
    counts = {entry.metadata["part"].count for entry in entries if "part" in entry.metadata}
    # `LayerEntries.layer` reads these three, and a dict of all entries reads all.
    layer = {"conv_cfg", "norm_cfg", "act_cfg"} if "entries.layer" in source else set()
    read = attributes(source)
    assert {entry.name for entry in entries} <= read | counts | layer or "asdict(self.entries)" in source


def has_one_value(entry):
    """Return whether the schema refuses all values of an entry but one, so that nothing need read it."""
    child = entry.metadata.get("nested")
    return "only" in entry.metadata or (child is not None and all(map(has_one_value, fields(child.schema))))


def attributes(source):
    """Return the names of the attributes that a source reads."""
    nodes = ast.walk(ast.parse(source.replace("from __future__ import annotations", "")))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


def schemas():
    """Return every `Schema` that is not a part's ``Entries``, by its name."""
    classes = {
        member
        for name, module in sys.modules.items()
        if name.startswith("mmort.detect.")
        for member in vars(module).values()
        if inspect.isclass(member)
    }
    classes |= {inner for member in classes for inner in vars(member).values() if inspect.isclass(inner)}
    # The entries of layers are passed on as the layers' arguments.
    layers = "mmort.detect.parts.layers", "mmort.detect.parts.necks.fpg"
    result = {member for member in classes if issubclass(member, Schema) and member.__name__ != "Entries"}
    result = {member for member in result if member.__module__ not in layers}
    return {f"{schema.__module__}.{schema.__qualname__}": schema for schema in result}


@functools.cache  # a second, for each of a hundred schemas
def attributes_that_anything_reads():
    folders = ROOT, ROOT.parent / "configs"
    return attributes("".join(path.read_text() for folder in folders for path in folder.rglob("*.py")))


@pytest.mark.parametrize("name", sorted(schemas()))
def test_schemas_declare_no_entries_that_nothing_reads(name):
    schema = schemas()[name]
    entries = [entry for entry in fields(schema) if "only" not in entry.metadata]
    # `TransformerLayer` reads these.
    attentions = {f"{attention}_cfg" for attention in getattr(schema, "attentions", ())}
    assert {entry.name for entry in entries} <= attributes_that_anything_reads() | attentions


def imports(path):
    """Return the names that a file imports, with the modules that they come from."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_families_import_families(path):
    if ROOT / "families" not in path.parents and path.name != "claims.py":  # which has them registered
        assert not [name for name in imports(path) if name.startswith("mmort.detect.families")]
    if ROOT / "parts" in path.parents or ROOT / "families" in path.parents:
        assert "mmort.detect.loading" not in imports(path)


def reads_by_key(node):
    """Return whether code reads a dict's entry by its name, but to translate older spellings."""
    if isinstance(node, ast.FunctionDef) and node.name == "respelled":
        return False
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        key = node.args[0] if node.args else None
    else:
        key = None
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return True
    return any(reads_by_key(child) for child in ast.iter_child_nodes(node))


def test_families_and_parts_read_configs_through_schemas():
    paths = [path for folder in ("families", "parts") for path in (ROOT / folder).rglob("*.py")]
    assert not [path for path in paths if reads_by_key(ast.parse(path.read_text()))]


@pytest.mark.parametrize("code", ["x = config['a']", "config.get('a', 1)", "y = [c.pop('a') for c in configs]"])
def test_reads_by_key_are_seen(code):
    assert reads_by_key(ast.parse(code))
    assert not reads_by_key(ast.parse(f"def respelled(cls, name, config):\n    {code.splitlines()[0]}"))


@pytest.mark.parametrize(
    ("part", "entry", "value"),
    [("neck", "in_channels", [8, -1]), ("backbone", "base_channels", -4), ("bbox_head", "feat_channels", 2**62)],
)
def test_sizes_that_torch_refuses_name_the_part(part, entry, value):
    config = dense_cases.config("ATSSHead")
    config["model"][part][entry] = value
    type = config["model"][part]["type"]
    with pytest.raises(ValueError, match=rf"^detect\.build: {part} '{type}' cannot be built: \w+: .") as caught:
        mmort.detect.build(config)
    assert "\n" not in str(caught.value)


def test_a_config_of_millions_of_layers():
    config = dense_cases.config("ATSSHead", stacked_convs=2**24)
    start = time.process_time()
    with pytest.raises(ValueError, match="must have at most 8000 weights and biases"):
        mmort.detect.build(config)
    assert time.process_time() - start < 10  # about 2; all of them would take minutes, and 10 GB
    mmort.detect.build(dense_cases.config("ATSSHead"))


def test_values_of_wrong_types_name_the_part():
    config = dense_cases.config("ATSSHead")
    config["model"]["bbox_head"]["anchor_generator"]["strides"] = [{}, 16]
    with pytest.raises(ValueError, match=r"^detect\.build: .* 'AnchorGenerator' cannot be built: KeyError: 0$"):
        mmort.detect.build(config)
