"""Read a config with everything that it inherits from: find its bases, and combine them with it."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmort._files.inputs import refuse_address
from mmort.configs import sources
from mmort.configs.budget import FILE, Budget
from mmort.configs.errors import ConfigError
from mmort.configs.merging import add_scope, merge, plain, unshared
from mmort.configs.overrides import nested, parse_options, refuse_unread
from mmort.configs.statements import ImportingProgram, Program, assigns_base, imports_bases
from mmort.configs.value_types import ConfigDict
from mmort.limits import MAX_INHERITED_CONFIGS


def read_config(
    path: str | os.PathLike[str],
    options: Mapping[str, Any] | Iterable[str] | None = None,
    search_path: Sequence[str | os.PathLike[str]] | None = None,
) -> dict[str, Any]:
    """Read a config with everything that it inherits from, without executing it.

    Parameters
    ----------
    path : path
        A ``.py``, ``.json``, ``.yaml`` or ``.yml`` file.
    options : dict or list of str, optional
        Values that override the config's, by dotted key: ``{"model.backbone.depth": 18}``, or text for `parse_options`.
        A number in a key is an index into a list: ``test_pipeline.0.type``.
    search_path : sequence of paths, optional
        Directories with packages whose configs are inherited from, as ``mmdet::_base_/default_runtime.py`` or as
        ``mmdet.configs._base_.default_runtime``: an installed or unpacked package (``mmdet/.mim/configs``), or a source
        tree (``configs`` beside ``mmdet``).  Default: ``sys.path``.

    Returns
    -------
    dict
        Plain dicts, lists, tuples and values.  A class that a config of the new kind imports is its dotted name
        (``"mmdet.models.RetinaNet"``).  Environment variables that a config names (``{{$NUM_CLASSES:80}}``) are filled
        in, as in MMDetection.

    Raises
    ------
    ConfigError
        A ValueError.  If the file is not a config, or has code that is not understood; the message has file and line.
    ImportError
        If a YAML file is read and PyYAML is not installed.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from mmort.configs import read_config
    >>> with TemporaryDirectory() as folder:
    ...     base, config = Path(folder, "base.py"), Path(folder, "config.py")
    ...     _ = base.write_text("model = dict(type='FCOS', head=dict(classes=80, sizes=[8 * 2**i for i in range(3)]))")
    ...     _ = config.write_text("_base_ = 'base.py'; model = dict(head=dict(classes=10))")
    ...     read_config(config, {"model.type": "ATSS"})
    {'model': {'type': 'ATSS', 'head': {'classes': 10, 'sizes': [8, 16, 32]}}}
    """
    reader = _Reader([Path(directory) for directory in (sys.path if search_path is None else search_path)])
    refuse_address("config", path)  # before Path, which takes slashes away
    path = Path(path)
    try:
        config = reader.read(path)
        if options is not None:
            overrides = nested(options if isinstance(options, Mapping) else parse_options(options))
            config = merge(overrides, config, "options", into_lists=True)
        reader.budget.pay_for(config)
        result: dict[str, Any] = plain(config)
        return result
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except ConfigError:
        raise
    except ValueError as error:  # from the budget, or from the options
        raise ConfigError(f"{path}: {error}") from None


class _Reader:
    """Reads one config and its bases; the files share a budget."""

    def __init__(self, search_path: list[Path]) -> None:
        self.search_path, self.budget = search_path, Budget()
        self.trees: dict[Path, ast.Module] = {}

    def read(self, path: Path) -> dict[str, Any]:
        """Read a config of either kind."""
        if path.suffix == ".py" and imports_bases(self._tree(path)):
            config, imported = self._read_importing(path, 0)
            return {key: value for key, value in config.items() if key not in imported}
        return self._read_merging(path, 0)

    def _tree(self, path: Path) -> ast.Module:
        """Parse a Python file with its substitutions, unless that has been done."""
        self.budget.pay(FILE)
        if path not in self.trees:
            self.trees[path] = sources.parse_python(path, self._text(path))
        return self.trees[path]

    def _text(self, path: Path) -> str:
        """Return the text of a file with its substitutions."""
        return sources.substitute(path, sources.read_text(path, self.budget), self.budget)

    def _read_merging(self, path: Path, depth: int) -> dict[str, Any]:
        """Read a config that names its bases in ``_base_``, and merge it into them."""
        _check_depth(path, depth)
        if path.suffix == ".py":
            tree = self._tree(path)
            if imports_bases(tree):
                raise ConfigError(f"{path}: a config with _base_ cannot inherit from one that imports its bases")
            bases = self._bases(path, self._base_names(path, tree), depth)
            variables: dict[str, Any] = {"_base_": bases}
            program = Program(str(path), variables, self.budget)
            program.run(statement for statement in tree.body if not assigns_base(statement))
            variables.pop("_base_", None)
        elif path.suffix in sources.SUFFIXES:
            data = sources.parse_data(path, self._text(path), self.budget)
            bases = self._bases(path, data.pop("_base_", None), depth)
            variables = sources.resolve(path, data, bases)
        else:
            swapped = ", and comes before the checkpoint" if path.suffix in (".pth", ".pt") else ""
            raise ConfigError(f"{path}: a config must be a .py, .json, .yaml or .yml file{swapped}")
        variables.pop("_deprecation_", None)  # a note to readers
        self.budget.pay_for((variables, bases))
        merged = merge({key: unshared(value) for key, value in variables.items()}, bases, str(path))
        return {key: value for key, value in merged.items() if not str(key).startswith("__")}

    def _base_names(self, path: Path, tree: ast.Module) -> Any:
        """Return the first value assigned to ``_base_``, or None."""
        for statement in tree.body:
            if assigns_base(statement):
                return Program(str(path), {}, self.budget).value(statement.value)
        return None

    def _bases(self, path: Path, names: Any, depth: int) -> ConfigDict:
        """Read the bases that ``_base_`` names into one dictionary."""
        bases: dict[str, Any] = {}
        for name in names if isinstance(names, list) else [] if names is None else [names]:
            if not isinstance(name, str):
                raise ConfigError(f"{path}: _base_ must be a path or a list of paths, got {name!r}")
            scope, colons, inner = name.partition("::")
            base = self._package_file(path, scope, inner) if colons else path.parent / name
            if not base.is_file():
                raise ConfigError(f"{path}: base config not found: {base}")
            config = self._read_merging(base, depth + 1)
            if config.keys() & bases.keys():
                repeated = ", ".join(sorted(config.keys() & bases.keys()))
                raise ConfigError(f"{path}: more than one base config defines {repeated}")
            bases.update(add_scope(config, scope) if colons else config)
        self.budget.pay_for(bases)
        return ConfigDict(bases)

    def _read_importing(self, path: Path, depth: int) -> tuple[dict[str, Any], set[str]]:
        """Read a config that imports its bases; return its variables and the names that it imports."""
        _check_depth(path, depth)

        def read_base(node: ast.ImportFrom) -> tuple[dict[str, Any], set[str]]:
            base = self._imported_file(path, node)
            if not base.is_file():
                raise program.error(node, f"base config not found: {base}")
            return self._read_importing(base, depth + 1)

        program = ImportingProgram(str(path), self.budget, read_base)
        self.budget.pay(FILE)
        program.run_file(sources.parse_python(path, sources.read_text(path, self.budget)))
        self.budget.pay_for(program.variables)
        entries = {key: value for key, value in program.variables.items() if not key.startswith("__")}
        return ConfigDict(entries), program.imported

    def _imported_file(self, path: Path, node: ast.ImportFrom) -> Path:
        """Return the path of the config that an import in `path` names."""
        parts = str(node.module).split(".")
        if node.level:
            return path.parent.joinpath(*[".."] * (node.level - 1), *parts).with_suffix(".py")
        inner = parts[2:] if parts[1:2] == ["configs"] else parts[1:]
        return self._package_file(path, parts[0], "/".join(inner) + ".py")

    def _package_file(self, path: Path, package: str, inner: str) -> Path:
        """Find a config of a package on the search path."""
        for directory in self.search_path:
            if re.fullmatch(r"\w+", package) and (directory / package).is_dir():
                for configs in (
                    directory / package / ".mim" / "configs",
                    directory / package / "configs",
                    directory / "configs",
                ):
                    if (configs / inner).is_file():
                        return configs / inner
        raise ConfigError(
            f"{path}: the search path has no config {inner} of {package}; install or unpack that package, "
            "and add its parent directory to the search path"
        )


def read_for_export(
    path: str | os.PathLike[str], options: Mapping[str, Any] | Iterable[str] | None = None
) -> dict[str, Any]:
    """Read a config, and refuse options that add entries which an export does not read; see `read_config`."""
    if options is not None and not isinstance(options, Mapping):
        options = parse_options(options)
    config = read_config(path, options)
    if options:
        refuse_unread(options, read_config(path))
    return config


def _check_depth(path: Path, depth: int) -> None:
    """Refuse configs that inherit from themselves."""
    if depth > MAX_INHERITED_CONFIGS:
        raise ConfigError(f"{path}: more than {MAX_INHERITED_CONFIGS} configs inherit from one another")
