"""All private parts of torch and onnxscript that the export uses.  Tested with torch 2.9.1, 2.13.0 and 2.15.0.

They change no file.  They improve messages: name the size that torch.export froze, collect the tracer's warnings, and
suppress output that users can do nothing about.  And they spare time that grows with the square of a graph.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from onnxscript.rewriter.pattern import MatchResult, SimplePatternMatcher

_OF_RECURRENCES = "._flat_weights["
"""In the warning that LSTM and GRU keep a list of their weights, which it takes for new ones."""

_KNOWN_WARNINGS = (
    "`isinstance(treespec, LeafSpec)` is deprecated",
    "You are using the legacy TorchScript-based ONNX export",
    "The feature will be removed. Please remove usage of this function",
    "# The axis name: ",  # shared with another input, or with another axis that always has the same size
    *(f"The shape inference of {domain}::" for domain in ("mmcv", "mmdeploy", "mmort")),
)
_LOGGERS = (
    "torch.onnx._internal.exporter._registration",
    "torch.onnx._internal.exporter._schemas",
    "torch.export._trace",
    "onnxscript.optimizer._constant_folding",
)
_KNOWN_LOGS = (
    "torchvision is not installed",
    "always_classified is unsupported",
    "Skipping constant folding for op",  # that has several outputs: a line for each in Mask2Former's
    "Missing annotation for parameter",  # of torch 2.9: a line for each argument of each translation of ours
)
_GRAPHS = ("def forward(", "class GraphModule(")  # torch.export prints its partial graph if it fails
_TRACER_WARNING = "TracerWarning"  # the name of a class that torch's stubs do not have


@contextlib.contextmanager
def quiet() -> Iterator[list[str]]:
    """Suppress needless output and warnings of torch's exporters; collect the tracer's warnings.

    The list is filled at the end of the block: a line for each number that Python code read and the tracer froze.
    """
    traced: list[str] = []
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_unknown)
    log_graph = torch._C._jit_onnx_log  # the legacy exporter prints the whole graph with it if it fails
    torch._C._jit_onnx_log = lambda *_: None
    try:
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(_WithoutGraphs(sys.stderr)):
            warnings.simplefilter("always")
            yield traced
    finally:
        for logger in loggers:
            logger.removeFilter(_is_unknown)
        torch._C._jit_onnx_log = log_graph
    for warning in caught:
        if warning.category.__name__ == _TRACER_WARNING:
            text = str(warning.message).split(". ")[0]
            traced.append(f"{text} ({warning.filename}:{warning.lineno})")
        elif not (str(warning.message).startswith(_KNOWN_WARNINGS) or _OF_RECURRENCES in str(warning.message)):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno, source=warning.source
            )


@contextlib.contextmanager
def linear_rewriting() -> Iterator[None]:
    """Let onnxscript look for a pattern of several outputs only at nodes that may be its first.

    It would collect the nodes of the whole graph at each node.
    """
    match = SimplePatternMatcher.match

    def match_where_it_begins(self: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        first, *more = self.pattern.output_nodes
        if more and first.op_identifier() not in (None, node.op_identifier()):
            return MatchResult().fail("another operator")
        return match(self, model, graph, node, **options)

    SimplePatternMatcher.match = match_where_it_begins  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        SimplePatternMatcher.match = match  # type: ignore[method-assign]


class _WithoutGraphs:
    """A text stream that passes on what is written to it, except graphs and the empty lines behind them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        line = text.strip()
        self._dropped = line.startswith(_GRAPHS) if line else self._dropped
        return len(text) if self._dropped else int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_unknown(record: logging.LogRecord) -> bool:
    """Return whether a log record is not known to be needless; a filter for loggers."""
    return not record.getMessage().startswith(_KNOWN_LOGS)


@dataclass(frozen=True)
class Guard:
    """A condition on the sizes of the inputs that torch.export assumed to hold."""

    condition: Any
    """A sympy expression."""
    sources: Mapping[Any, str]
    """torch's names of the symbols in it: ``L['x'][0].size()[2]``."""
    location: str
    """The line of the model that needs it."""

    def holds(self, arguments: Mapping[str, Any]) -> bool:
        """Evaluate the condition for the model's arguments."""
        sizes = {symbol: _size(self.sources[symbol], arguments) for symbol in self.condition.free_symbols}
        return bool(self.condition.subs(sizes))

    def __str__(self) -> str:
        """Write the condition with ``x.shape[2]`` instead of torch's names."""
        text = str(self.condition)
        for symbol in self.condition.free_symbols:
            name = re.sub(r"^L\['(\w+)'\](.*)\.size\(\)", r"\1\2.shape", self.sources[symbol])
            text = re.sub(rf"\b{symbol}\b", name, text)
        return re.sub(r"^Eq\((.*), (.*)\)$", r"\1 == \2", text)


def guards(program: torch.export.ExportedProgram) -> list[Guard]:
    """Return the conditions on the inputs' sizes under which a captured program is the model."""
    environment = _shape_environment(program)
    sources = {
        symbol: str(source[0].name if isinstance(source[0].name, str) else source[0].name())
        for symbol, source in getattr(environment, "var_to_sources", {}).items()
    }
    return [
        Guard(guard.expr, sources, str(guard.sloc).removeprefix("(").removesuffix(")"))
        for guard in getattr(environment, "guards", ())
        if guard.expr.free_symbols <= set(sources)
    ]


def _size(source: str, arguments: Mapping[str, Any]) -> int:
    """Look up the size that torch calls ``L['x'][0].size()[2]``."""
    tensor, axis = source.split(".size()")
    value: Any = arguments
    for key in re.findall(r"\[(.*?)\]", tensor):
        value = value[ast.literal_eval(key)]
    return int(value.shape[int(axis.strip("[]"))])


def _shape_environment(program: torch.export.ExportedProgram) -> Any:
    """Return the record of a program's symbolic sizes, which every such size refers to, or None."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None
