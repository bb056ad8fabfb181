"""Evaluate the statements of configs: assignments, loops and conditions, and the imports of configs of the new kind.

Statements that `STATEMENTS` does not list are refused, with file and line.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from mmort.configs.budget import Budget
from mmort.configs.errors import excerpt
from mmort.configs.expressions import Evaluator
from mmort.configs.value_types import Imported


class Program(Evaluator):
    """Evaluates statements of one file into `variables`."""

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """Evaluate statements one after another."""
        for statement in statements:
            handler = STATEMENTS.get(type(statement))
            if handler is None:
                raise self.refused(statement, excerpt(statement))
            self.guarded(handler, statement)

    # The handlers of `STATEMENTS`: each evaluates its kind of node.

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value)

    def _assign_annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value))

    def _assign_augmented(self, node: ast.AugAssign) -> None:
        value, old = self.value(node.value), self.value(node.target)
        if isinstance(old, list) and isinstance(node.op, ast.Add):  # in place, as in Python
            self.budget.pay(len(value))
            old.extend(value)
        else:
            self.store(node.target, self.calculate(node.op, old, value))

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                del self.variables[target.id]
            else:
                container, key = self.element(target)
                del container[key]

    def _expression(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _if(self, node: ast.If) -> None:
        self.run(node.body if self.value(node.test) else node.orelse)

    def _for(self, node: ast.For) -> None:
        for item in self.iterate(self.value(node.iter)):
            self.store(node.target, item)
            self.run(node.body)
        self.run(node.orelse)

    def _pass(self, node: ast.Pass) -> None:
        pass


class ImportingProgram(Program):
    """Evaluates a config of the new kind, which imports its bases and the classes that it names.

    Parameters
    ----------
    path, budget
        As for `Evaluator`.
    read_base : function
        Returns the variables of the config that a ``from ... import ...`` names, and the names that config imports.

    Attributes
    ----------
    imported : set of str
        The variables that are imports, of this config and its bases.
    """

    def __init__(
        self, path: str, budget: Budget, read_base: Callable[[ast.ImportFrom], tuple[dict[str, Any], set[str]]]
    ) -> None:
        super().__init__(path, {}, budget)
        self.read_base = read_base
        self.imported: set[str] = set()

    def run_file(self, tree: ast.Module) -> None:
        """Evaluate a whole file; imports are allowed at its outermost level only."""
        for node in tree.body:
            if isinstance(node, ast.With):
                for statement in node.body:
                    self._import_base(statement)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._import(node, node.module or "", alias)
                    self.variables[alias.asname or alias.name] = Imported(f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(node, alias.name, alias)
                    name = alias.asname or alias.name.partition(".")[0]
                    self.variables[name] = Imported(alias.name if alias.asname else name)
            elif assigns_base(node):
                raise self.error(node, "a config that imports its bases cannot name others in _base_")
            else:
                self.run([node])

    def _import(self, node: ast.stmt, module: str, alias: ast.alias) -> None:
        """Check and record the import of a name that is not a config's."""
        if alias.name == "*" or (isinstance(node, ast.ImportFrom) and node.level):
            raise self.error(node, "only `with read_base():` may import configs")
        if module.partition(".")[0] in sys.stdlib_module_names:
            raise self.refused(node, f"import of {module}")
        self.imported.add((alias.asname or alias.name).partition(".")[0])

    def _import_base(self, node: ast.stmt) -> None:
        """Take over variables of a base."""
        if not isinstance(node, ast.ImportFrom) or not node.module:
            raise self.error(node, "`with read_base():` takes `from ... import ...` only")
        base, imported = self.read_base(node)
        self.imported |= imported
        for alias in node.names:
            if alias.name == "*":
                self.variables.update(base)
            elif alias.name in base:
                self.variables[alias.asname or alias.name] = base[alias.name]
            else:
                raise self.error(node, f"{'.' * node.level}{node.module} does not define {alias.name}")


def assigns_base(node: ast.stmt) -> TypeGuard[ast.Assign]:
    """Return whether a statement assigns ``_base_``."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_base_"


def imports_bases(tree: ast.Module) -> bool:
    """Return whether a config imports its bases; a file of neither kind is left to `Program`, which refuses it."""
    for node in tree.body:
        if assigns_base(node):
            return False
        match node:
            case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Name(id="read_base")))]):
                return True
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in sys.stdlib_module_names:
                pass
            case ast.ImportFrom(module=module) if module != "mmengine.config":
                return True
            case ast.Import(names=names):
                if any(alias.name.partition(".")[0] not in sys.stdlib_module_names for alias in names):
                    return True
    return False


STATEMENTS: dict[type[ast.AST], Callable[[Program, Any], None]] = {
    ast.AnnAssign: Program._assign_annotated,
    ast.Assign: Program._assign,
    ast.AugAssign: Program._assign_augmented,
    ast.Delete: Program._delete,
    ast.Expr: Program._expression,
    ast.For: Program._for,
    ast.If: Program._if,
    ast.Pass: Program._pass,
}
