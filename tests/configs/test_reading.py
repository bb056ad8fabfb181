"""Configs: read as MMEngine reads them, and never executed."""

import ast
import contextlib
import copy
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmort._files.inputs import open_regular
from mmort.configs import ConfigError, parse_options, read_config
from mmort.configs.budget import Budget
from mmort.limits import MAX_CONFIG_STEPS

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
EXPECTED = ast.literal_eval((CONFIGS / "expected.txt").read_text())  # written by make_expected.py


def typed(value):
    """Return a config as text, so that 1, 1.0 and True differ, and the order of keys counts."""
    return repr(value).replace(str(CONFIGS), "FOLDER")


@pytest.fixture
def config(tmp_path):
    def read(text, *options, name="config.py"):
        (tmp_path / name).write_text(text)
        return read_config(tmp_path / name, options)

    return read


@pytest.mark.parametrize("name", EXPECTED)
def test_equal_to_mmengine(name, monkeypatch):
    monkeypatch.setenv("MMORT_TEST_CLASSES", "9")
    assert typed(read_config(CONFIGS / name, search_path=[CONFIGS / "packages"])) == typed(EXPECTED[name])


def test_relative_path(monkeypatch):
    monkeypatch.chdir(CONFIGS / "deeper")
    monkeypatch.setenv("MMORT_TEST_CLASSES", "9")
    assert typed(read_config("child.py")) == typed(EXPECTED["deeper/child.py"])


def test_environment(monkeypatch):
    monkeypatch.delenv("MMORT_TEST_CLASSES", raising=False)
    monkeypatch.setenv("MMORT_TEST_CHECKPOINT", "'a.pth'")
    read = read_config(CONFIGS / "inherit.py")
    assert (read["num_classes"], read["checkpoint"]) == (7, "a.pth")
    monkeypatch.setenv("MMORT_TEST_CHECKPOINT", "__import__('os')")
    with pytest.raises(ConfigError, match=r"base_model\.py:7: .*the call of __import__ is refused"):
        read_config(CONFIGS / "inherit.py")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("import os", 1, "import of os is refused|import os is refused"),
        ("a = 1\nb = __import__('os').system('true')", 2, "the call of __import__ is refused"),
        ("a = [\n  1,\n  open('x').read()]", 3, "the call of open is refused"),
        ("a = exec", 1, "exec is not defined"),
        ("a = len", 1, "len may only be called"),
        ("a = max([1], key=len)", 1, "len may only be called"),
        ("a = ().__class__", 1, r"attribute \(\)\.__class__ is refused"),
        ("a = [].append.__self__", 1, "is refused"),
        ("a = '{0.__class__}'.format(1)", 1, "field '0.__class__' is refused"),
        ("a = '{0[0]}'.format([1])", 1, "is refused"),
        ("a = dict()\na.b = 1", 2, r"cannot assign to or delete a\.b"),
        ("a = _base_.__class__", 1, "key not found: '__class__'"),
        ("a = _base_.update(5)", 1, "not iterable"),
        ("a = _base_.merge(5)", 1, "merge takes a dictionary, not a int"),
        ("a = (lambda: 1)()", 1, "the call of lambda: 1 is refused"),
        ("a = lambda: 1", 1, "lambda: 1 is refused"),
        ("def f():\n  pass", 1, r"def f\(\):.* is refused"),
        ("while True:\n  pass", 1, "while True:.* is refused"),
        ("for i in [1]:\n  break", 2, "break is refused"),
        ("with open('x') as f:\n  pass", 1, "is refused"),
        ("a = (b := 1)", 1, "is refused"),
        ("a = 1 @ 2", 1, "operator MatMult is refused"),
        ("a = ~1", 1, "operator Invert is refused"),
        ("a = 1j", 1, "not a value that configs may have"),
        ("a = ...", 1, "not a value that configs may have"),
        ("a = '%999999999d' % 1", 1, "write an f-string"),
        ("a = f'{1:999999999}'", 1, "format '999999999' is refused"),
        ("a = 1\n\na = b", 3, "b is not defined"),
        ("a = dict(b=1)\na.pop('c')", 2, "key not found: 'c'"),
        ("a = 1 / 0", 1, "division by zero"),
        ("a, b = 1, 2, 3", 1, "cannot unpack 3 values"),
        ("a = dict(**dict(b=1), b=2)", 1, r"got \['b'\] twice"),
        ("a = {[]: 1}", 1, "a key must be text, a number or None, got a list"),
        ("a = [1][5]", 1, "index out of range"),
        ("a = b'\\0' * 3 + 'x'", 1, "can't concat|concat"),
        ("a = )", 1, "not valid Python"),
        ("a = '\0'", 1, "not valid Python|null byte"),
        ("_base_ = 'nowhere.py'", 0, "base config not found"),
        ("_base_ = 5", 0, "_base_ must be a path"),
        ("_base_ = 'config.py'", 0, "more than 20 configs inherit"),
        ("_base_ = open('x')", 1, "the call of open is refused"),
        ("_base_ = 'mmdet::../../x.py'", 0, "the search path has no config"),
        ("from x import *", 1, "may import configs"),
        ("from os import system", 1, "import of os is refused|is refused"),
        ("with read_base():\n  import x", 2, "takes `from"),
        ("with read_base():\n  from .nowhere import *", 2, "base config not found"),
        ("a = dict(**5)", 1, r"\*\* needs a dict, got 5"),
        ("a = dict(**[])", 1, r"\*\* needs a dict, got \[\]"),
        ("a = {**5}", 1, r"\*\* needs a dict, got 5"),
        ("a = [].nothing()", 1, r"the call of \[\]\.nothing is refused"),
        ("for i in 5: pass", 1, "a int is not iterable"),
        ("from mmdet.models import FCOS\nmodel = FCOS(1)", 2, "the call of FCOS is refused"),
        ("from mmdet.models import FCOS\nmodel = FCOS.__globals__", 2, "is refused"),
    ],
)
def test_refused(config, text, line, message):
    location = rf"config\.py:{line}: " if line else r"config\.py: "
    with pytest.raises(ConfigError, match=rf"{location}(?s:.*)({message})") as error:
        config(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "a = 9 ** 9 ** 9",
        "a = 1\nfor i in range(99): a = a * 10",
        "a = int('9' * 4000)",
        "a = [0] * 10 ** 9",
        "a = 'x' * 10 ** 10",
        "a = list(range(10 ** 12))",
        "a = sum(range(10 ** 12))",
        "a = 10 ** 12 in range(10 ** 15)",
        "a = [i for i in range(10 ** 5) for j in range(10 ** 5)]",
        "a = [0]\nfor i in a: a.append(i)",
        "a = 'x'\nfor i in range(60): a = a + a",
        "a = 'x'\nfor i in range(60): a = f'{a}{a}'",
        "a = 'x'\nfor i in range(60): a = '{0}{0}'.format(a)",
        "a = [1]\nfor i in range(60): a = [a, a]",
        "a = (1,)\nfor i in range(60): a = (a, a)\nb = {a: 1}",
        "a, b = [1], [1]\nfor i in range(60): a, b = [a, a], [b, b]\nc = a == b",
        "a = [1]\nfor i in range(10 ** 5): a = [a]",
        "a = (1,)\nfor i in range(10 ** 5): a = (a,)\nb = {a: 1}",
        "a = []\na.append(a)",
        "a = dict()\na['a'] = a",
        "a = sum([[0] * 1000] * 3000, [])",
        "a = round(1, -10**9)",
        "a = sorted([[0] * 1000] * 10 ** 5)",
        "a = 1" + " + 1" * 10**5,
        "a = " + "[" * 10**4 + "]" * 10**4,
        "a = " + "-" * 10**4 + "1",
        "a = [dict(a=i) for i in range(10 ** 9)]",
        "a = [[x for x in ()] for i in range(10 ** 9)]",
        "a = f'" + "{1}" * 25_000 + "'",
        "a = '" + "{}" * 30_000 + "'.format(*range(30_000))",
    ],
    ids=range(30),
)
def test_bombs(config, text, small_budget):
    refused_in_time(config, text, limit=0.5)


def test_bomb_with_the_whole_budget(config):
    refused_in_time(config, "a = [dict(a=i) for i in range(10 ** 9)]", limit=5)


@pytest.fixture
def small_budget(monkeypatch):
    """A tenth of the steps, which are to be refused in a tenth of the time: `python -m tests.fuzz.configs` uses all."""
    monkeypatch.setattr(Budget.__init__, "__defaults__", (MAX_CONFIG_STEPS // 10,))


def refused_in_time(config, text, message=None, limit=2, **options):
    start = time.process_time()
    with pytest.raises(ConfigError, match=message):
        config(text, **options)
    assert time.process_time() - start < limit


# Distinct tuples of one hash: hash(-1) == hash(-2).
COLLIDING = "a = [()]\nfor i in range(12): a = [x + (-1,) for x in a] + [x + (-2,) for x in a]\n"


@pytest.mark.parametrize(
    "text", ["{x: 1 for x in a}", "{x for x in a}", "set(a)", "dict(zip(a, a))", "{}.update(zip(a, a))", "{a[0]: 1}"]
)
def test_keys_cannot_collide(config, text):
    refused_in_time(config, f"{COLLIDING}b = {text}", "a key must be text, a number or None, got a tuple")
    refused_in_time(config, COLLIDING + "b = {}\nfor x in a: b[x] = 1", "got a tuple")
    refused_in_time(config, "b = {}\nb.setdefault((1,), 1)", "got a tuple")


def yaml_doubling(line):
    """Return YAML of 40 lines, each of which uses the one before twice."""
    return "a0: &a0 {k: 1}\n" + "".join(line.format(i, i - 1) for i in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (yaml_doubling("a{0}: &a{0} {{<<: [*a{1}, *a{1}]}}\n"), "more steps or memory"),
        (yaml_doubling("a{0}: &a{0} [*a{1}, *a{1}]\n"), "more steps or memory"),
        ("a: 1" + ":1" * 4_000, "numbers of more than 100 characters"),
        ("a: 1" + ":1" * 4_000 + ".5", "numbers of more than 100 characters"),
        ("a: 0x" + "f" * 10_000, "numbers of more than 100 characters"),
        ("a: 0x" + "f" * 20, "integers of more than 64 bits"),
        ("a:\n" + "- 1\n" * 30_000, "more steps or memory"),
        ("a: " + "[" * 10**4, "more than 100 deep"),
        ("a: !!bool x", "does not fit its tag"),
        ("a: !!timestamp x", "does not fit its tag"),
    ],
    ids=range(10),
)
def test_yaml_bombs(config, text, message, small_budget):
    refused_in_time(config, text, message, 1, name="config.yaml")


@pytest.mark.parametrize(
    "text", ["{{$a:" + " " * 50_000, "{{$a:" * 20_000, "{{$a" * 25_000, "{{" + " " * 50_000, "{{_base_." + "a" * 50_000]
)
def test_unfinished_substitutions(config, text):
    """Regular expressions that look for the end of a substitution look once."""
    start = time.process_time()
    assert config(f"x = 1  # {text}") == {"x": 1}
    assert config(f'{{"x": 1, "{text}": 2}}', name="config.json")["x"] == 1
    assert time.process_time() - start < 2


def test_substitutions_cannot_grow(config, monkeypatch):
    monkeypatch.setenv("MMORT_TEST_LONG", "x" * 10_000)
    refused_in_time(config, "# " + "{{$MMORT_TEST_LONG:}}" * 5_000, "more steps or memory")


@pytest.mark.parametrize(
    "inherit", ["_base_ = ['{0}.py', '{0}.py']", "with read_base():\n  from .{0} import *\n  from .{0} import *"]
)
def test_doubled_bases(config, tmp_path, inherit):
    for level in range(20):
        (tmp_path / f"b{level}.py").write_text(inherit.format(f"b{level + 1}") if level < 19 else "a = 1")
    refused_in_time(config, inherit.format("b0"), "more steps or memory|more than one base")


def test_escapes_that_python_does_not_know(config):
    """Python warns of them, without the name of the config: an error here, as warnings are."""
    assert config(r"a = '\d+\.weight'")["a"] == r"\d+\.weight"


def test_size_limit(config):
    text = "a = 1\n" + "#" * 128_000
    with pytest.raises(ConfigError, match="larger than 128000 bytes"):
        config(text)
    assert config(text[:128_000]) == {"a": 1}


def test_only_regular_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(ConfigError, match="must be a regular file, got a pipe or a device"):
        read_config(tmp_path / "pipe.py")
    with pytest.raises(ValueError, match="must be a regular file, got a pipe or a device"):
        open_regular("config", "/dev/zero")
    with pytest.raises(IsADirectoryError):
        open_regular("config", tmp_path)


def test_dictionaries_of_bases_are_updated_with_pairs(config):
    assert config("_base_.update([('a', 1)], b=2)\nc = _base_.a") == {"a": 1, "b": 2, "c": 1}


def test_budget_pays_for_nested_elements():
    budget = Budget(100)
    with pytest.raises(ValueError, match="more steps or memory"):
        budget.pay_for([list(range(50)), "x" * 60])


def test_inheritance_refuses(tmp_path):
    (tmp_path / "a.py").write_text("model = [1]\nlr = 1")
    (tmp_path / "b.py").write_text("lr = 2")
    for text, message in {
        "_base_ = ['a.py', 'b.py']": "more than one base config defines lr",
        "_base_ = 'a.py'\nmodel = dict(a=1)": "model is a dict, but a list in the base",
        "_base_ = 'a.py'\nx = _base_.y": "key not found: 'y'",
        "with read_base():\n  from .a import z": "does not define z",
    }.items():
        (tmp_path / "c.py").write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_config(tmp_path / "c.py")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", "{", "Expecting property name"),
        ("c.json", "[1]", "a config must be a mapping, got list"),
        ("c.yaml", "a: [", "expected the node"),
        ("c.yaml", "a: !!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("c.yaml", "a: &a [*a]", "recursive|deep"),
        ("c.yaml", "a: {{_base_.b.c}}", "the base configs do not define b.c"),
        ("c.json", '{"_base_": "c.json"}', "more than 20"),
        ("c.txt", "a = 1", r"a \.py, \.json, \.yaml or \.yml file"),
    ],
)
def test_other_formats_refuse(config, name, text, message):
    with pytest.raises(ConfigError, match=message):
        config(text, name=name)


def test_not_a_text_file(tmp_path):
    (tmp_path / "c.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a text file"):
        read_config(tmp_path / "c.py")
    with pytest.raises(FileNotFoundError):
        read_config(tmp_path / "nowhere.py")


# As mmengine.config.DictAction parses them.
VALUES = {
    "3": 3,
    "-1e-3": -0.001,
    "TRUE": True,
    "None": None,
    "none": "none",
    "'text'": "text",
    "a b": "ab",
    "1,2": [1, 2],
    "[1,2]": [1, 2],
    "(1,)": (1,),
    "[]": [],
    "()": (),
    "[(1,2),[a,0.5],c]": [(1, 2), ["a", 0.5], "c"],
    "[[(1,2)]]": [[(1, 2)]],
    "(1,2),(3,4)": [(1, 2), (3, 4)],
    "a=b": "a=b",
    "": "",
    "(1": "(1",
    "(x)-(y)": "(x)-(y)",
}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_option_values(text, value):
    assert typed(parse_options([f"key={text}"])["key"]) == typed(value)


@pytest.mark.parametrize("option", ["key", "=1", "key=[1,2", "key=[1,2)]", "key=" + "[" * 2000 + "]" * 2000])
def test_options_refuse(option):
    with pytest.raises(ValueError, match=r"key=value|brackets|deep"):
        parse_options([option])


def test_options_reach_lists_and_new_keys(config):
    text = "model = dict(heads=[dict(a=1), dict(a=2, b=[0, 1])])"
    read = config(text, "model.heads.1.a=5", "model.heads.1.b.0=x", "model.new.depth=18", "data=1,2")
    assert read == {
        "model": {"heads": [{"a": 1}, {"a": 5, "b": ["x", 1]}], "new": {"depth": 18}},
        "data": [1, 2],
    }
    for option, message in {
        "model.heads.2.a=5": "index 2 is out of range for a list of 2",
        "model.heads.x=5": "'x' is not an index into a list",
        "model.heads.0.a.b=5": "a is a dict, but a int",
    }.items():
        with pytest.raises(ConfigError, match=message):
            config(text, option)


def test_options_change_one_of_two_equal_lists(config):
    """A list that a config uses twice becomes two lists, which options change independently."""
    read = config("pipeline = [dict(a=1)]\nval = dict(p=pipeline)\ntest = dict(p=pipeline)", "test.p.0.a=2")
    assert (read["val"]["p"][0]["a"], read["test"]["p"][0]["a"]) == (1, 2)
    assert read["pipeline"] is not read["val"]["p"]


def test_options_are_not_changed(tmp_path):
    """The same options are read with two configs."""
    (tmp_path / "config.py").write_text("model = dict(neck=dict(type='FPN', num_outs=5))")
    options = {"model.neck": {"_delete_": True, "type": "None"}, "data": {"a": [1]}, "data.b": 2}
    before = copy.deepcopy(options)
    first = read_config(tmp_path / "config.py", options)
    assert first == {"model": {"neck": {"type": "None"}}, "data": {"a": [1], "b": 2}}
    assert options == before
    assert read_config(tmp_path / "config.py", options) == first


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_text_is_read_or_refused(tmp_path_factory, data):
    """Lines of configs in random order, with a random edit."""
    lines = "\n".join((CONFIGS / name).read_text() for name in ("features.py", "deeper/taken_apart.py")).split("\n")
    text = "\n".join(data.draw(st.lists(st.sampled_from(lines), max_size=12)))
    position, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 6))
    text = text[:position] + data.draw(st.text("()[]{}'*._=, x1", max_size=4)) + text[position + length :]
    path = tmp_path_factory.getbasetemp() / "lines.py"
    path.write_text(text)
    with contextlib.suppress(ConfigError):
        read = read_config(path)
        assert copy.deepcopy(read) == read
