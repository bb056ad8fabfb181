"""Evaluate the expressions of configs from their syntax tree; no Python is executed.

The tables here are complete: syntax (`EXPRESSIONS`), functions, methods and operators that they do not list are
refused, with file and line.
"""

from __future__ import annotations

import ast
import operator
import re
import string
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from mmort.configs.budget import (
    CALL,
    COMPREHENSION,
    FORMATTED_FIELD,
    Budget,
    check_integer,
    check_key,
)
from mmort.configs.errors import ConfigError, excerpt
from mmort.configs.value_types import ConfigDict, Imported
from mmort.limits import MAX_CONFIG_INTEGER_BITS


def _new_dict(pairs: Any = (), /, **entries: Any) -> dict[Any, Any]:
    """Make a dict as `dict` does, with checked keys."""
    result: dict[Any, Any] = {}
    for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
        check_key(key)
        result[key] = value
    return {**result, **entries}


def _new_set(items: Iterable[Any] = (), /) -> set[Any]:
    """Make a set as `set` does, with checked elements."""
    result = set()
    for item in items:
        check_key(item)
        result.add(item)
    return result


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "all": all,
    "any": any,
    "bool": bool,
    "dict": _new_dict,
    "enumerate": lambda *items: list(enumerate(*items)),
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "range": range,
    "reversed": lambda items: list(reversed(items)),
    "round": lambda number: round(number),  # without digits, of which -10**9 would take for ever
    "set": _new_set,
    "sorted": sorted,
    "str": str,
    "sum": lambda numbers: sum(numbers),  # without a start, which could be a list
    "tuple": tuple,
    "zip": lambda *items: list(zip(*items, strict=False)),
}

METHODS: dict[type, frozenset[str]] = {
    ConfigDict: frozenset({"copy", "get", "items", "keys", "merge", "pop", "update", "values"}),
    dict: frozenset({"copy", "get", "items", "keys", "pop", "setdefault", "update", "values"}),
    list: frozenset({"append", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"}),
    tuple: frozenset({"count", "index"}),
    str: frozenset({"endswith", "format", "lower", "lstrip", "rstrip", "split", "startswith", "strip", "upper"}),
}

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}

_ITERABLES: tuple[Any, ...] = (str, list, tuple, set, dict, range, type({}.keys()), type({}.items()))


class Evaluator:
    """Evaluates expressions of one file.

    Parameters
    ----------
    path : str
        Name of the file, for messages.
    variables : dict
        The values of names; comprehensions and statements (`Program`) change it.
    budget : Budget
        Shared by all files of a config.
    """

    def __init__(self, path: str, variables: MutableMapping[str, Any], budget: Budget) -> None:
        self.path, self.variables, self.budget = path, variables, budget

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            raise self.refused(node, excerpt(node))
        return self.guarded(handler, node)

    def error(self, node: ast.AST, message: str) -> ConfigError:
        """Return an error with the file and the line of a node."""
        return ConfigError(f"{self.path}:{getattr(node, 'lineno', 1)}: {message}")

    def refused(self, node: ast.AST, description: str) -> ConfigError:
        """Return the error for code that would have to be executed."""
        return self.error(node, f"configs are read, not executed: {description} is refused")

    def guarded(self, handler: Callable[[Any, Any], Any], node: ast.AST) -> Any:
        """Evaluate a node: pay for it, limit the result, and turn errors into a `ConfigError`."""
        try:
            self.budget.pay(1)
            value = handler(self, node)
            check_integer(value)
            return value
        except ConfigError:
            raise
        except RecursionError:
            raise self.error(node, "nested too deeply") from None
        except KeyError as error:
            raise self.error(node, f"key not found: {error}") from None
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise self.error(node, f"{excerpt(node)}: {error}") from None

    def store(self, target: ast.expr, value: Any) -> None:
        """Assign a value to a name, an element, an attribute, or a tuple of such targets."""
        if isinstance(target, ast.Name):
            self.variables[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(self.iterate(value))
            if any(isinstance(item, ast.Starred) for item in target.elts) or len(values) != len(target.elts):
                raise self.error(target, f"cannot unpack {len(values)} values into {ast.unparse(target)}")
            for item, part in zip(target.elts, values, strict=True):
                self.store(item, part)
        else:
            container, key = self.element(target)
            self.budget.pay_for(value if isinstance(container, ConfigDict) else key)
            if isinstance(container, dict):
                check_key(key)
            container[key] = value

    def element(self, target: ast.expr) -> tuple[Any, Any]:
        """Return the container and the key of an element to assign or delete."""
        if isinstance(target, ast.Subscript):
            container = self.value(target.value)
            if isinstance(container, (dict, list)):
                return container, self.value(target.slice)
        elif isinstance(target, ast.Attribute):
            container = self.value(target.value)
            if isinstance(container, ConfigDict):
                return container, target.attr
        raise self.error(target, f"cannot assign to or delete {excerpt(target)}")

    def iterate(self, values: Any) -> Iterator[Any]:
        """Yield the elements of a value, paying for each."""
        if not isinstance(values, _ITERABLES):
            raise TypeError(f"a {type(values).__name__} is not iterable")
        value: Any
        for value in values:
            self.budget.pay(1)
            yield value

    def calculate(self, kind: ast.operator, left: Any, right: Any) -> Any:
        """Return the result of a binary operator."""
        function = OPERATORS.get(type(kind))
        if function is None:
            raise ValueError(f"operator {type(kind).__name__} is refused")
        sizes = [len(value) for value in (left, right) if isinstance(value, (str, bytes, list, tuple))]
        if isinstance(kind, ast.Mult) and sizes:
            self.budget.pay(sizes[0] * max(0, right if isinstance(right, int) else left))
        elif isinstance(kind, ast.Mod) and isinstance(left, (str, bytes)):
            raise ValueError("% with text is refused; write an f-string")
        elif isinstance(kind, ast.Pow) and isinstance(left, int) and isinstance(right, int):
            if (left.bit_length() - 1) * right > MAX_CONFIG_INTEGER_BITS:
                raise ValueError(f"integers of more than {MAX_CONFIG_INTEGER_BITS} bits are refused")
        else:
            self.budget.pay(sum(sizes))
        return function(left, right)

    # The handlers of `EXPRESSIONS`: each returns the value of its kind of node.

    def _constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, (str, bytes, int, float, type(None))):
            raise ValueError("not a value that configs may have")
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.variables:
            problem = "may only be called" if node.id in FUNCTIONS else "is not defined in this config"
            raise self.error(node, f"{node.id} {problem}")
        return self.variables[node.id]

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Imported) and not node.attr.startswith("_"):
            return Imported(f"{owner}.{node.attr}")
        if isinstance(owner, ConfigDict) and node.attr not in METHODS[ConfigDict]:
            return owner[node.attr]
        raise self.refused(node, f"attribute {excerpt(node)}")

    def _subscript(self, node: ast.Subscript) -> Any:
        container = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [part and self.value(part) for part in (node.slice.lower, node.slice.upper, node.slice.step)]
            self.budget.pay(len(container))
            return container[slice(*bounds)]
        key = self.value(node.slice)
        self.budget.pay_for(key)
        return container[key]

    def _list(self, node: ast.List) -> list[Any]:
        return list(self._elements(node.elts))

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._elements(node.elts))

    def _set(self, node: ast.Set) -> Any:
        match node.elts:
            case [ast.Set([ast.Attribute() as base])]:  # {{ _base_.variable }}
                return self.value(base)
        values = list(self._elements(node.elts))
        self.budget.pay_for(values)
        return _new_set(values)

    def _elements(self, nodes: Iterable[ast.expr]) -> Iterator[Any]:
        """Yield the values of expressions, some of which may be starred."""
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.iterate(self.value(node.value))
            else:
                yield self.value(node)

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self._entries(value))
            else:
                name = self.value(key)
                self.budget.pay_for(name)
                check_key(name)
                result[name] = self.value(value)
        return result

    def _entries(self, node: ast.expr) -> dict[Any, Any]:
        """Return the dictionary that an expression after ``**`` evaluates to."""
        entries = self.value(node)
        if not isinstance(entries, dict):
            raise self.error(node, f"** needs a dict, got {excerpt(node)}")
        self.budget.pay(len(entries))
        return entries

    def _binary(self, node: ast.BinOp) -> Any:
        return self.calculate(node.op, self.value(node.left), self.value(node.right))

    def _unary(self, node: ast.UnaryOp) -> Any:
        function = OPERATORS.get(type(node.op))
        if function is None:
            raise ValueError(f"operator {type(node.op).__name__} is refused")
        return function(self.value(node.operand))

    def _boolean(self, node: ast.BoolOp) -> Any:
        value: Any = None
        for operand in node.values:
            value = self.value(operand)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def _comparison(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        result: Any = True
        for kind, operand in zip(node.ops, node.comparators, strict=True):
            right = self.value(operand)
            self.budget.pay_for((left, right))
            result = OPERATORS[type(kind)](left, right)
            if not result:
                break
            left = right
        return result

    def _conditional(self, node: ast.IfExp) -> Any:
        return self.value(node.body if self.value(node.test) else node.orelse)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Any:
        self.budget.pay(COMPREHENSION)
        inner = Evaluator(self.path, ChainMap({}, self.variables), self.budget)  # loop variables stay inside
        if isinstance(node, ast.DictComp):
            entries: dict[Any, Any] = {}
            for _ in inner._loops(node.generators):
                key = inner.value(node.key)
                self.budget.pay_for(key)
                check_key(key)
                entries[key] = inner.value(node.value)
            return entries
        result = [inner.value(node.elt) for _ in inner._loops(node.generators)]
        if isinstance(node, ast.SetComp):
            self.budget.pay_for(result)
            return _new_set(result)
        return result  # for a generator too: its values are all used at once

    def _loops(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Run nested loops; yield when their variables are set for an element."""
        if not generators:
            yield
            return
        for item in self.iterate(self.value(generators[0].iter)):
            self.store(generators[0].target, item)
            if all(self.value(condition) for condition in generators[0].ifs):
                yield from self._loops(generators[1:])

    def _text(self, node: ast.JoinedStr) -> str:
        return "".join(self.value(part) for part in node.values)

    def _field(self, node: ast.FormattedValue) -> str:
        conversion = f"!{chr(node.conversion)}" if node.conversion > 0 else ""
        specification = self.value(node.format_spec) if node.format_spec else ""
        return self._format(f"{{{conversion}:{specification}}}", [self.value(node.value)], {})

    def _format(self, template: str, values: list[Any], entries: dict[str, Any]) -> str:
        """Format text as `str.format` does, but without access to attributes and without wide fields."""
        for _, field, specification, _ in string.Formatter().parse(template):
            if field and not re.fullmatch(r"\w*", field):
                raise ValueError(f"field {field!r} is refused")
            if specification and re.search(r"\d{4}|[{*]", specification):
                raise ValueError(f"format {specification!r} is refused")
            self.budget.pay(FORMATTED_FIELD)
            self.budget.pay_for((values, entries))
        result = template.format(*values, **entries)
        self.budget.pay(len(result))
        return result

    def _call(self, node: ast.Call) -> Any:
        self.budget.pay(CALL)
        owner: Any = None
        match node.func:
            case ast.Name(id=name) if name in FUNCTIONS and name not in self.variables:
                function = FUNCTIONS[name]
            case ast.Attribute(value=inner, attr=name):
                owner = self.value(inner)
                if name not in METHODS.get(type(owner), ()):
                    raise self._refused_call(node)
                function = getattr(owner, name)
            case _:
                raise self._refused_call(node)
        values = list(self._elements(node.args))
        entries: dict[str, Any] = {}
        for keyword in node.keywords:
            keyword_entries = (
                self._entries(keyword.value) if keyword.arg is None else {keyword.arg: self.value(keyword.value)}
            )
            if keyword_entries.keys() & entries.keys():
                raise self.error(node, f"{name}() got {sorted(keyword_entries.keys() & entries.keys())} twice")
            entries.update(keyword_entries)
        if name == "format":
            return self._format(owner, values, entries)
        if name != "dict" or values:
            self.budget.pay_for((owner, values, entries))
        if name == "update":
            values = [_new_dict(value) for value in values]
        elif name == "setdefault":
            check_key(*values[:1])
        return function(*values, **entries)

    def _refused_call(self, node: ast.Call) -> ConfigError:
        """Return the error for a call that is not in the tables."""
        return self.refused(node, f"the call of {excerpt(node.func)}")


EXPRESSIONS: dict[type[ast.AST], Callable[[Evaluator, Any], Any]] = {
    ast.Attribute: Evaluator._attribute,
    ast.BinOp: Evaluator._binary,
    ast.BoolOp: Evaluator._boolean,
    ast.Call: Evaluator._call,
    ast.Compare: Evaluator._comparison,
    ast.Constant: Evaluator._constant,
    ast.Dict: Evaluator._dict,
    ast.DictComp: Evaluator._comprehension,
    ast.FormattedValue: Evaluator._field,
    ast.GeneratorExp: Evaluator._comprehension,
    ast.IfExp: Evaluator._conditional,
    ast.JoinedStr: Evaluator._text,
    ast.List: Evaluator._list,
    ast.ListComp: Evaluator._comprehension,
    ast.Name: Evaluator._name,
    ast.Set: Evaluator._set,
    ast.SetComp: Evaluator._comprehension,
    ast.Subscript: Evaluator._subscript,
    ast.Tuple: Evaluator._tuple,
    ast.UnaryOp: Evaluator._unary,
}
