"""What torch.export took for granted of an example's sizes: the cause when a file is right for the example only."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mmort.onnx.checks import is_dynamic


def violated(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    dynamic_shapes: tuple[Any, ...],
    good: Sequence[tuple[Any, ...]],
    bad: Sequence[tuple[Any, ...]],
) -> list[str]:
    """Name the conditions that the example meets, inputs that failed do not, and inputs that succeeded do.

    torch.onnx.export throws these conditions away, so this captures the model again: only for the text of an error.
    torch has no public way to ask for them either; where a version of torch keeps them elsewhere, none is named.
    """
    try:
        program = torch.export.export(module, args, dynamic_shapes=_automatic(dynamic_shapes))
    except Exception as error:  # whatever it is, it is the answer
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return ["torch.export says: " + " ".join(lines[:4])]
    environment = _environment(program)
    if environment is None:
        return []
    sources = {
        symbol: str(source[0].name if isinstance(source[0].name, str) else source[0].name())
        for symbol, source in getattr(environment, "var_to_sources", {}).items()
    }
    signature = inspect.signature(module.forward)
    found = []
    for guard in environment.guards:
        if guard.expr.free_symbols <= set(sources):
            holds = [
                [_holds(guard.expr, sources, signature.bind(*values).arguments) for values in inputs]
                for inputs in (good, bad)
            ]
            if all(holds[0]) and not all(holds[1]):
                place = str(guard.sloc).removeprefix("(").removesuffix(")")
                found.append(f"{_readable(guard.expr, sources)} was taken for granted at {place}")
    return found


def _holds(condition: Any, sources: Mapping[Any, str], arguments: Mapping[str, Any]) -> bool:
    """Put the sizes of inputs into a condition."""
    sizes = {symbol: _size(sources[symbol], arguments) for symbol in condition.free_symbols}
    return bool(condition.subs(sizes))


def _size(source: str, arguments: Mapping[str, Any]) -> int:
    """Look up what torch calls ``L['x'][0].size()[2]``."""
    tensor, axis = source.split(".size()")
    value: Any = arguments
    for key in re.findall(r"\[(.*?)\]", tensor):
        value = value[ast.literal_eval(key)]
    return int(value.shape[int(axis.strip("[]"))])


def _readable(condition: Any, sources: Mapping[Any, str]) -> str:
    """Write a condition with ``x.shape[2]`` instead of torch's names."""
    text = str(condition)
    for symbol in condition.free_symbols:
        name = re.sub(r"^L\['(\w+)'\](.*)\.size\(\)", r"\1\2.shape", sources[symbol])
        text = re.sub(rf"\b{symbol}\b", name, text)
    return re.sub(r"^Eq\((.*), (.*)\)$", r"\1 == \2", text)


def _automatic(spec: Any) -> Any:
    """Let torch.export freeze what it must, and say so, where it otherwise would refuse a dynamic axis."""
    if isinstance(spec, Mapping):
        return {key: _automatic(one) for key, one in spec.items()}
    if isinstance(spec, (list, tuple)):
        return type(spec)(map(_automatic, spec))
    return torch.export.Dim.AUTO if is_dynamic(spec) else spec


def _environment(program: torch.export.ExportedProgram) -> Any:
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None
