"""Random configs and their bases, in Python, JSON and YAML: each is read or refused within 2 seconds and 500 MB.

python -m tests.fuzz.configs --seconds 60 [--seed N] [--count N]
"""

import random
import sys
from pathlib import Path

from mmort.configs import read_config
from mmort.limits import MAX_CONFIG_BYTES
from tests.fuzz.children import Fuzzer, main

NAMES = ("a", "b", "model", "_base_", "_base_.a", "d['k']", "x")
ATOMS = (
    "0",
    "1",
    "-1",
    "-2",
    "9**9",
    "1e308",
    "'x'",
    "b'y'",
    "None",
    "True",
    "()",
    "[]",
    "{}",
    "set()",
    "dict()",
    "''",
)
FUNCTIONS = (
    "len",
    "list",
    "set",
    "dict",
    "sorted",
    "sum",
    "zip",
    "range",
    "str",
    "int",
    "float",
    "tuple",
    "enumerate",
    "max",
)
METHODS = (
    "append",
    "extend",
    "update",
    "setdefault",
    "pop",
    "items",
    "split",
    "format",
    "sort",
    "index",
    "merge",
    "copy",
)
OPERATORS = ("+", "*", "-", "/", "//", "%", "**", "<", "==", "in", "and", "or", "is", "@")
SUBSTITUTIONS = ("{{", "{{$", "{{$a:", "{{$HOME:x}}", "{{fileDirname}}", "{{ _base_.a }}", "}}", "' ", "  ", "\t" * 50)
BRACKETS = ("(", "[", "{", "{1:", "f(", "lambda:", "not ", "-", "*", "f'{", "x[", "if 1: ", "a if a else ", "a.")


def expression(rng: random.Random, depth: int) -> str:
    """Return an expression, or something like one."""
    if depth <= 0 or rng.random() < 0.2:
        return rng.choice(ATOMS + NAMES)
    inner = [expression(rng, depth - 1) for _ in range(rng.choice((1, 1, 2, 3)))]
    first = inner[0]
    return rng.choice(
        (
            f"[{', '.join(inner)}]",
            f"({', '.join(inner)},)",
            f"{{{first}: {inner[-1]}}}",
            f"{{{', '.join(inner)}}}",
            f"{rng.choice(FUNCTIONS)}({', '.join(inner)})",
            f"{rng.choice(NAMES)}.{rng.choice(METHODS)}({', '.join(inner)})",
            f" {rng.choice(OPERATORS)} ".join(inner),
            f"[{first} for x in {inner[-1]}]",
            f"{{{first}: 1 for x in range({10 ** rng.randrange(7)}) for y in {inner[-1]}}}",
            f"[{first}] * 10 ** {rng.randrange(9)}",
            f"range({10 ** rng.randrange(12)})",
            f"f'{{{first}}}{{x:{rng.choice(('9', '999', '99999', '.3f'))}}}'",
            f"{first} if {inner[-1]} else {first}",
            f"({first})[{inner[-1]}:]",
        )
    )


def statement(rng: random.Random) -> str:
    """Return a line of a config."""
    name, value = rng.choice(NAMES), expression(rng, rng.randrange(4))
    return rng.choice(
        (
            f"{name} = {value}",
            f"a = {value}",
            f"{name} += {value}",
            f"for x in range({10 ** rng.randrange(8)}): {name} = {value}",
            f"for x in {value}: b = [b, b]",
            f"for i in range({rng.randrange(40)}): a = [a, a]",
            f"for i in range({rng.randrange(40)}): a = (a, {rng.choice(ATOMS)})",
            f"if {value}: {name} = {value}",
            f"del {name}",
            "# " + rng.choice(SUBSTITUTIONS) * rng.choice((1, 100, 10_000)),
            rng.choice(BRACKETS) * rng.choice((1, 30, 95, 3_000)),
            value,
        )
    )


def python(rng: random.Random) -> str:
    """Return a config in Python."""
    lines = ["a = [1]", "b = (1,)", "d = dict(k=1)", "x = 'x'"]
    lines += [statement(rng) for _ in range(rng.choice((1, 1, 2, 3, 10)))]
    if rng.random() < 0.2:
        lines += [rng.choice(lines)] * rng.choice((10, 1_000, 10_000))
    return "\n".join(lines)


def data(rng: random.Random) -> str:
    """Return a config in YAML or JSON, or something like one."""
    tokens = ["[", "]", "{", "}", ",", ":", '"', "'", ".5", "x", "# ", " ", "null", "1e999", "NaN", "[[", "---"]
    tokens += ["a: ", "- ", "? ", "&a ", "*a", "<<: ", "!!int ", "!!timestamp ", "!!set ", "\\x41"]
    parts = (
        *tokens,
        "\n",
        "\n  ",
        "\t",
        "|\n ",
        "1:" * 50,
        "0x" + "f" * 30,
        "9" * 30,
        "<<: [*a, *a]",
        '"a":',
        "{{$a:",
        "- 1\n",
    )
    text = "".join(rng.choice(parts) * rng.choice((1, 1, 1, 1, 40, 5_000)) for _ in range(rng.randrange(1, 40)))
    if rng.random() < 0.3:
        width, use = rng.randrange(2, 6), rng.choice(("[{}]", "{{<<: [{}]}}", "{{k: [{}]}}"))
        text += "\na0: &a0 {k: 1}\n"
        for i in range(1, rng.randrange(2, 40)):
            text += f"a{i}: &a{i} " + use.format(", ".join([f"*a{i - 1}"] * width)) + "\n"
    return text


def write(rng: random.Random, folder: Path) -> Path:
    """Write a config and its bases."""
    suffix = rng.choice((".py", ".py", ".py", ".yaml", ".json"))
    text = python(rng) if suffix == ".py" else data(rng)
    if suffix == ".py" and rng.random() < 0.3:
        levels, bases = rng.randrange(1, 25), rng.randrange(1, 4)
        for level in range(levels):
            names = [f"b{level + 1}.py"] * bases
            (folder / f"b{level}.py").write_text(f"_base_ = {names}" if level < levels - 1 else python(rng))
        text = f"_base_ = {['b0.py'] * rng.randrange(1, 3)}\n{text}"
    content = text.encode()[: 2 * MAX_CONFIG_BYTES]
    if rng.random() < 0.2:
        position = rng.randrange(len(content) + 1)
        content = content[:position] + rng.randbytes(rng.randrange(1, 9)) + content[position:]
    path = folder / f"config{suffix}"
    path.write_bytes(content)
    return path


def read(path: Path) -> None:
    """Read a config."""
    read_config(path, search_path=[])


if __name__ == "__main__":
    sys.exit(main(Fuzzer("configs", write, read)))
