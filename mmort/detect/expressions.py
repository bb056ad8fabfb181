"""Evaluates the Python that configs are written in, from its syntax tree: nothing of it is ever executed.

What is not listed here (`STATEMENTS`, `EXPRESSIONS`, `FUNCTIONS`, `METHODS`, `OPERATORS`) is refused, with file and
line.  All work is paid from a `Budget`, so that no config takes long or much memory.
"""

from __future__ import annotations

import ast
import operator
import re
import string
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

LONGEST_INTEGER = 64  # bits: also keeps out what would collide in every dict
DEEPEST_VALUE = 100  # containers in containers


class ConfigError(ValueError):
    """A config that cannot be read; the text starts with the file and mostly the line."""


class Budget:
    """The steps that reading a config may take: a step is a node of the tree, or an element or character handled.

    Of the published configs the largest takes 475,116 (MMDetection 3.3.0, GLIP on 35 data sets).
    """

    def __init__(self, steps: int = 3_000_000) -> None:
        self.steps = steps

    def pay(self, steps: int) -> None:
        """Take steps away; `ValueError` when there are not so many left."""
        self.steps -= steps
        if self.steps < 0:
            raise ValueError("this takes more steps or memory than any config needs")

    def pay_for(self, value: Any) -> None:
        """Pay for each element of a value, of those within it too, so that it may be compared, hashed or printed."""
        stack = [(value, 0)]
        while stack:
            value, depth = stack.pop()
            if depth > DEEPEST_VALUE:
                raise ValueError(f"a value holds containers more than {DEEPEST_VALUE} deep")
            self.pay(1 + len(value) if isinstance(value, (str, bytes, range)) else 1)
            if isinstance(value, dict):
                stack += [(item, depth + 1) for pair in dict.items(value) for item in pair]
            elif isinstance(value, (list, tuple, set)):
                self.pay(len(value))
                stack += [(item, depth + 1) for item in value]


class ConfigDict(dict[Any, Any]):
    """A dictionary of a base config: its entries are attributes too, and `update` merges the dictionaries within.

    Examples
    --------
    >>> from mmort.detect.expressions import ConfigDict
    >>> model = ConfigDict({"head": {"classes": 80, "channels": 256}})
    >>> model.update({"head": {"classes": 10}})
    >>> model
    {'head': {'classes': 10, 'channels': 256}}
    """

    def __init__(self, entries: Mapping[Any, Any] | None = None) -> None:
        super().__init__()
        for key, value in (entries or {}).items():
            self[key] = value

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: D105
        super().__setitem__(key, self.hook(value))

    @classmethod
    def hook(cls, value: Any) -> Any:
        """Return the value with its dictionaries as `ConfigDict`."""
        if type(value) is dict:
            return cls(value)
        if isinstance(value, (list, tuple)):
            return type(value)(cls.hook(item) for item in value)
        return value

    def copy(self) -> ConfigDict:
        """Return a copy; what is within stays shared."""
        return ConfigDict(self)

    def pop(self, key: Any, default: Any = None) -> Any:
        """Take an entry away and return it, or the default."""
        return super().pop(key, default)

    def update(self, *others: Mapping[Any, Any], **entries: Any) -> None:  # type: ignore[override]
        """Merge other dictionaries in, entry by entry."""
        for other in (*others, entries):
            for key, value in other.items():
                if isinstance(self.get(key), dict) and isinstance(value, dict):
                    self[key].update(value)
                else:
                    self[key] = value

    def merge(self, other: dict[Any, Any]) -> None:
        """Merge another dictionary in, which may replace what is here by saying ``_delete_=True``."""
        merged = _merged(other, self)
        self.clear()
        self.update(merged)


def _merged(new: Any, old: Any) -> Any:
    if not isinstance(new, dict):
        return new
    entries = {key: value for key, value in new.items() if key != "_delete_"}
    if not isinstance(old, dict):
        return entries
    kept = {} if new.get("_delete_") else old
    changed = {key: _merged(value, kept[key]) if key in kept else value for key, value in entries.items()}
    return {**kept, **changed}


class Imported(str):
    """The dotted name of what a config imports; nothing is imported."""


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "all": all,
    "any": any,
    "bool": bool,
    "dict": dict,
    "enumerate": lambda *items: list(enumerate(*items)),
    "float": float,
    "int": int,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "range": range,
    "reversed": lambda items: list(reversed(items)),
    "set": set,
    "sorted": sorted,
    "str": str,
    "sum": lambda numbers: sum(numbers),  # a start could be a list
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


class Evaluator:
    """Evaluates one file's statements into `variables`.

    Parameters
    ----------
    path : str
        The file's name, for messages.
    variables : dict
        Changed in place: what the file assigns.
    budget : Budget
        Shared by all files of a config.
    """

    def __init__(self, path: str, variables: MutableMapping[str, Any], budget: Budget) -> None:
        self.path, self.variables, self.budget = path, variables, budget

    def refused(self, node: ast.AST, what: str) -> ConfigError:
        """Return the error that names file, line and what."""
        return ConfigError(f"{self.path}:{getattr(node, 'lineno', 1)}: {what}")

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """Evaluate statements one after another."""
        for statement in statements:
            handler = STATEMENTS.get(type(statement))
            if handler is None:
                raise self.refused(statement, f"configs are read, not executed: {_kind(statement)} is refused")
            self._guarded(handler, statement)

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression."""
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            raise self.refused(node, f"configs are read, not executed: {_kind(node)} is refused")
        return self._guarded(handler, node)

    def _guarded(self, handler: Callable[[Evaluator, Any], Any], node: ast.AST) -> Any:
        try:
            self.budget.pay(1)
            value = handler(self, node)
            if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
                raise ValueError(f"an integer of more than {LONGEST_INTEGER} bits is refused")
            return value
        except ConfigError:
            raise
        except RecursionError:
            raise self.refused(node, "nested too deeply") from None
        except KeyError as error:
            raise self.refused(node, f"there is no {error}") from None
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise self.refused(node, f"{ast.unparse(node)[:80]}: {error}") from None

    # ---- statements

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._store(target, value)

    def _assign_annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._store(node.target, self.value(node.value))

    def _assign_augmented(self, node: ast.AugAssign) -> None:
        target = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
        value, old = self.value(node.value), self.value(target)
        if isinstance(old, list) and isinstance(node.op, ast.Add):  # in place, as Python does
            self.budget.pay(len(value))
            old.extend(value)
        else:
            self._store(node.target, self._calculate(node.op, old, value))

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.variables[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(self._iterate(value))
            if any(isinstance(item, ast.Starred) for item in target.elts) or len(values) != len(target.elts):
                raise self.refused(target, f"cannot unpack {len(values)} values into {ast.unparse(target)}")
            for item, one in zip(target.elts, values, strict=True):
                self._store(item, one)
        else:
            container, key = self._place(target)
            self.budget.pay_for(value if isinstance(container, ConfigDict) else key)
            container[key] = value

    def _place(self, target: ast.expr) -> tuple[Any, Any]:
        """Return the container and the key that `target` names."""
        if isinstance(target, ast.Subscript):
            container = self.value(target.value)
            if isinstance(container, (dict, list)):
                return container, self.value(target.slice)
        elif isinstance(target, ast.Attribute):
            container = self.value(target.value)
            if isinstance(container, ConfigDict):
                return container, target.attr
        raise self.refused(target, f"cannot assign to or delete {ast.unparse(target)[:80]}")

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                del self.variables[target.id]
            else:
                container, key = self._place(target)
                del container[key]

    def _expression(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _if(self, node: ast.If) -> None:
        self.run(node.body if self.value(node.test) else node.orelse)

    def _for(self, node: ast.For) -> None:
        for item in self._iterate(self.value(node.iter)):
            self._store(node.target, item)
            self.run(node.body)
        self.run(node.orelse)

    def _pass(self, node: ast.Pass) -> None:
        pass

    # ---- expressions

    def _constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, (str, bytes, int, float, type(None))):
            raise ValueError("is no value of a config")
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id not in self.variables:
            what = "may only be called" if node.id in FUNCTIONS else "is not defined in this config"
            raise self.refused(node, f"{node.id} {what}")
        return self.variables[node.id]

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Imported) and not node.attr.startswith("_"):
            return Imported(f"{owner}.{node.attr}")
        if isinstance(owner, ConfigDict) and node.attr not in METHODS[ConfigDict]:
            return owner[node.attr]
        raise self.refused(node, f"configs are read, not executed: attribute {ast.unparse(node)[:80]} is refused")

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
        return set(values)

    def _elements(self, nodes: Iterable[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._iterate(self.value(node.value))
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
                result[name] = self.value(value)
        return result

    def _entries(self, node: ast.expr) -> dict[Any, Any]:
        entries = self.value(node)
        if not isinstance(entries, dict):
            raise self.refused(node, f"** needs a dict, got {ast.unparse(node)[:80]}")
        self.budget.pay(len(entries))
        return entries

    def _operation(self, node: ast.BinOp) -> Any:
        return self._calculate(node.op, self.value(node.left), self.value(node.right))

    def _calculate(self, kind: ast.operator, left: Any, right: Any) -> Any:
        function = OPERATORS.get(type(kind))
        if function is None:
            raise ValueError(f"operator {type(kind).__name__} is refused")
        sizes = [len(value) for value in (left, right) if isinstance(value, (str, bytes, list, tuple))]
        if isinstance(kind, ast.Mult) and sizes:
            self.budget.pay(sizes[0] * max(0, right if isinstance(right, int) else left))
        elif isinstance(kind, ast.Mod) and isinstance(left, (str, bytes)):
            raise ValueError("% with text is refused; write an f-string")
        elif isinstance(kind, ast.Pow) and isinstance(left, int) and isinstance(right, int):
            if (left.bit_length() - 1) * right > LONGEST_INTEGER:
                raise ValueError(f"an integer of more than {LONGEST_INTEGER} bits is refused")
        else:
            self.budget.pay(sum(sizes))
        return function(left, right)

    def _sign(self, node: ast.UnaryOp) -> Any:
        function = OPERATORS.get(type(node.op))
        if function is None:
            raise ValueError(f"operator {type(node.op).__name__} is refused")
        return function(self.value(node.operand))

    def _logic(self, node: ast.BoolOp) -> Any:
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
        inner = Evaluator(self.path, ChainMap({}, self.variables), self.budget)  # its loop variables stay its own
        if isinstance(node, ast.DictComp):
            keys, values = node.key, node.value
            result: Any = {}
            for _ in inner._loops(node.generators):
                key = inner.value(keys)
                self.budget.pay_for(key)
                result[key] = inner.value(values)
            return result
        result = [inner.value(node.elt) for _ in inner._loops(node.generators)]
        if isinstance(node, ast.SetComp):
            self.budget.pay_for(result)
            return set(result)
        return result  # a generator's values too: all are wanted at once

    def _loops(self, generators: list[ast.comprehension]) -> Iterator[None]:
        if not generators:
            yield
            return
        for item in self._iterate(self.value(generators[0].iter)):
            self._store(generators[0].target, item)
            if all(self.value(condition) for condition in generators[0].ifs):
                yield from self._loops(generators[1:])

    def _iterate(self, values: Any) -> Iterator[Any]:
        if not isinstance(values, (str, list, tuple, set, dict, range, type({}.keys()), type({}.items()))):
            raise TypeError(f"a {type(values).__name__} has no elements")
        value: Any
        for value in values:
            self.budget.pay(1)
            yield value

    def _text(self, node: ast.JoinedStr) -> str:
        return "".join(self.value(part) for part in node.values)

    def _field(self, node: ast.FormattedValue) -> str:
        conversion = f"!{chr(node.conversion)}" if node.conversion > 0 else ""
        specification = self.value(node.format_spec) if node.format_spec else ""
        return self._format(f"{{{conversion}:{specification}}}", [self.value(node.value)], {})

    def _format(self, template: str, values: list[Any], entries: dict[str, Any]) -> str:
        """Format text as `str.format`, without its access to attributes, and without wide fields."""
        for _, field, specification, _ in string.Formatter().parse(template):
            if field and not re.fullmatch(r"\w*", field):
                raise ValueError(f"field {field!r} is refused")
            if specification and re.search(r"\d{4}|[{*]", specification):
                raise ValueError(f"format {specification!r} is refused")
            self.budget.pay_for((values, entries))
        result = template.format(*values, **entries)
        self.budget.pay(len(result))
        return result

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and node.func.id not in self.variables:
            owner: Any = None
            name, function = node.func.id, FUNCTIONS[node.func.id]
        elif isinstance(node.func, ast.Attribute):
            owner, name = self.value(node.func.value), node.func.attr
            if name not in METHODS.get(type(owner), ()):
                raise self._refused_call(node)
            function = getattr(owner, name)
        else:
            raise self._refused_call(node)
        values = list(self._elements(node.args))
        entries: dict[str, Any] = {}
        for keyword in node.keywords:
            more = self._entries(keyword.value) if keyword.arg is None else {keyword.arg: self.value(keyword.value)}
            if more.keys() & entries.keys():
                raise self.refused(node, f"{name}() got {sorted(more.keys() & entries.keys())} twice")
            entries.update(more)
        if name == "format":
            return self._format(owner, values, entries)
        if name != "dict" or values:
            self.budget.pay_for((owner, values, entries))
        return function(*values, **entries)

    def _refused_call(self, node: ast.Call) -> ConfigError:
        return self.refused(
            node, f"configs are read, not executed: the call of {ast.unparse(node.func)[:80]} is refused"
        )


def _kind(node: ast.AST) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= 80 else f"{text[:77]}..."


STATEMENTS: dict[type[ast.AST], Callable[[Evaluator, Any], None]] = {
    ast.AnnAssign: Evaluator._assign_annotated,
    ast.Assign: Evaluator._assign,
    ast.AugAssign: Evaluator._assign_augmented,
    ast.Delete: Evaluator._delete,
    ast.Expr: Evaluator._expression,
    ast.For: Evaluator._for,
    ast.If: Evaluator._if,
    ast.Pass: Evaluator._pass,
}

EXPRESSIONS: dict[type[ast.AST], Callable[[Evaluator, Any], Any]] = {
    ast.Attribute: Evaluator._attribute,
    ast.BinOp: Evaluator._operation,
    ast.BoolOp: Evaluator._logic,
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
    ast.UnaryOp: Evaluator._sign,
}
