"""Reads MMDetection's configs, of its 2.x and 3.x: their files, what they inherit from, and options over them.

The result equals that of ``mmengine.Config.fromfile``; but nothing is executed or imported: see `expressions`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmort.detect.expressions import Budget, ConfigDict, ConfigError, Evaluator, Imported

__all__ = ["ConfigError", "parse_options", "read_config"]

LARGEST_FILE = 1_000_000  # bytes
LONGEST_CHAIN = 20  # of configs that inherit from one another


def read_config(
    path: str | os.PathLike[str],
    options: Mapping[str, Any] | Iterable[str] | None = None,
    search_path: Sequence[str | os.PathLike[str]] | None = None,
) -> dict[str, Any]:
    """Read a config with all that it inherits from; nothing of it is executed.

    Parameters
    ----------
    path : path
        A ``.py``, ``.json``, ``.yaml`` or ``.yml`` file.
    options : dict or list of str, optional
        Values that replace the config's, by dotted key: ``{"model.backbone.depth": 18}``, or as `parse_options` takes
        them.  A number in a key is a place in a list: ``test_pipeline.0.type``.
    search_path : sequence of paths, optional
        Folders that hold packages whose configs are inherited from, as ``mmdet::_base_/default_runtime.py`` or as
        ``mmdet.configs._base_.default_runtime``: with an installed or unpacked package (``mmdet/.mim/configs``), or
        with a source folder (``configs`` beside ``mmdet``).  Default: ``sys.path``.

    Returns
    -------
    dict
        Plain dicts, lists, tuples and values.  A class that a config of the new kind imports is its dotted name
        (``"mmdet.models.RetinaNet"``).  Environment variables are read where a config names them
        (``{{$NUM_CLASSES:80}}``), as MMDetection does.

    Raises
    ------
    ConfigError
        A ValueError.  If the file is no config, or holds something else than the values of one; the text has file and
        line.
    ImportError
        If a YAML file is met and PyYAML is not installed.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from mmort.detect.config import read_config
    >>> with TemporaryDirectory() as folder:
    ...     base, config = Path(folder, "base.py"), Path(folder, "config.py")
    ...     _ = base.write_text("model = dict(type='FCOS', head=dict(classes=80, sizes=[8 * 2**i for i in range(3)]))")
    ...     _ = config.write_text("_base_ = 'base.py'; model = dict(head=dict(classes=10))")
    ...     read_config(config, {"model.type": "ATSS"})
    {'model': {'type': 'ATSS', 'head': {'classes': 10, 'sizes': [8, 16, 32]}}}
    """
    reader = _Reader([Path(folder) for folder in (sys.path if search_path is None else search_path)])
    path = Path(path)
    try:
        if reader.imports_bases(path):
            config, imported = reader.read_importing(path, 0)
            config = {key: value for key, value in config.items() if key not in imported}
        else:
            config = reader.read(path, 0)
        if options is not None:
            config = _merge(_nested(options if isinstance(options, Mapping) else parse_options(options)), config, True)
        reader.budget.pay_for(config)
        plain: dict[str, Any] = _plain(config)
        return plain
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    except ConfigError:
        raise
    except ValueError as error:  # of the budget, or of the options
        raise ConfigError(f"{path}: {error}") from None


def parse_options(options: Iterable[str]) -> dict[str, Any]:
    """Parse ``key=value`` as MMDetection's ``--cfg-options`` does.

    A value is an int, a float, a bool, None or text; ``1,2`` and ``[1,2]`` are lists, ``(1,2)`` is a tuple, and they
    nest.  Spaces and outer quotes are dropped.

    Raises
    ------
    ValueError
        If there is no ``=``, or brackets do not match.

    Examples
    --------
    >>> from mmort.detect.config import parse_options
    >>> parse_options(["model.test_cfg.score_thr=0.3", "scale=(800,1333)", "ratios=[0.5,1]", "name=x", "flip=False"])
    {'model.test_cfg.score_thr': 0.3, 'scale': (800, 1333), 'ratios': [0.5, 1], 'name': 'x', 'flip': False}
    """
    parsed = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise ValueError(f"options are key=value, got {option!r}")
        try:
            parsed[key] = _option_value(value)
        except RecursionError:
            raise ValueError(f"option {key} is nested too deeply") from None
    return parsed


def _option_value(text: str) -> Any:
    text = text.strip("'\"").replace(" ", "")
    parts = _split(text)
    if parts and len(parts) > 1:
        return _option_values(parts)
    if "," in text and not parts:
        raise ValueError(f"brackets do not match in {text!r}")
    inner = _split(text[1:-1]) if text[:1] + text[-1:] in ("()", "[]") else None
    if inner:
        return _option_values(inner) if text[0] == "[" else tuple(_option_values(inner))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), None if text == "None" else text)


def _option_values(parts: list[str]) -> list[Any]:
    return [_option_value(part) for part in (parts if parts[-1] else parts[:-1])]  # a comma may end them


def _split(text: str) -> list[str] | None:
    """Split at the commas outside all brackets; None if brackets do not match."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            return None
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return None if depth else parts


class _Reader:
    """Reads one config: what all its files share."""

    def __init__(self, search_path: list[Path]) -> None:
        self.search_path, self.budget = search_path, Budget()

    def read(self, path: Path, depth: int) -> dict[str, Any]:
        """Read a file that names its bases in ``_base_``, and merge it into them."""
        if path.suffix not in (".py", ".json", ".yaml", ".yml"):
            raise ConfigError(f"{path}: a config is a .py, .json, .yaml or .yml file")
        text = self._substituted(path, self._text(path, depth))
        if path.suffix == ".py":
            tree = _parse(path, text)
            if _imports_bases(tree):
                raise ConfigError(f"{path}: a config with _base_ cannot inherit from one that imports its bases")
            paths: Any = None
            for node in tree.body:
                if paths is None and _assigns_base(node):
                    paths = Evaluator(str(path), {}, self.budget).value(node.value)  # type: ignore[attr-defined]
            bases = self._bases(path, paths, depth)
            variables: dict[str, Any] = {"_base_": bases}
            Evaluator(str(path), variables, self.budget).run(node for node in tree.body if not _assigns_base(node))
            del variables["_base_"]
        else:
            variables = self._loaded(path, text)
            bases = self._bases(path, variables.pop("_base_", None), depth)
            variables = _resolved(path, variables, bases)
        variables.pop("_deprecation_", None)  # a note for readers
        self.budget.pay_for((variables, bases))
        merged = _merge({key: _unshared(value) for key, value in variables.items()}, bases, False, str(path))
        return {key: value for key, value in merged.items() if not str(key).startswith("__")}

    def _bases(self, path: Path, names: Any, depth: int) -> ConfigDict:
        bases: dict[str, Any] = {}
        for name in names if isinstance(names, list) else [] if names is None else [names]:
            if not isinstance(name, str):
                raise ConfigError(f"{path}: _base_ must be a path or a list of paths, got {name!r}")
            scope, colons, inner = name.partition("::")
            base = self._package_file(path, scope, inner) if colons else path.parent / name
            if not base.is_file():
                raise ConfigError(f"{path}: there is no base config {base}")
            config = self.read(base, depth + 1)
            if config.keys() & bases.keys():
                raise ConfigError(f"{path}: two base configs define {', '.join(sorted(config.keys() & bases.keys()))}")
            bases.update(_scoped(config, scope) if colons else config)
        self.budget.pay_for(bases)
        return ConfigDict(bases)

    def _package_file(self, path: Path, package: str, inner: str) -> Path:
        """Find a config of a package on the search path."""
        for folder in self.search_path:
            if re.fullmatch(r"\w+", package) and (folder / package).is_dir():
                for configs in (
                    folder / package / ".mim" / "configs",
                    folder / package / "configs",
                    folder / "configs",
                ):
                    if (folder / configs / inner).is_file():
                        return folder / configs / inner
        raise ConfigError(
            f"{path}: there is no config {inner} of {package} on the search path; install or unpack that package, "
            "and name the folder it is in"
        )

    def imports_bases(self, path: Path) -> bool:
        """Tell whether a file is a config of the new kind, with imports."""
        return path.suffix == ".py" and _imports_bases(_parse(path, self._substituted(path, self._text(path, 0))))

    def read_importing(self, path: Path, depth: int) -> tuple[dict[str, Any], set[str]]:
        """Read a file that imports its bases and its classes; return its variables and the names it has imported."""
        tree = _parse(path, self._text(path, depth))
        variables: dict[str, Any] = {}
        imported: set[str] = set()
        evaluator = Evaluator(str(path), variables, self.budget)
        for node in tree.body:
            if isinstance(node, ast.With):
                for statement in node.body:
                    self._import_base(evaluator, statement, path, imported, depth)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._import(evaluator, node, node.module or "", alias, imported)
                    variables[alias.asname or alias.name] = Imported(f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(evaluator, node, alias.name, alias, imported)
                    name = alias.asname or alias.name.partition(".")[0]
                    variables[name] = Imported(alias.name if alias.asname else name)
            elif _assigns_base(node):
                raise evaluator.refused(node, "a config that imports its bases cannot name others in _base_")
            else:
                evaluator.run([node])
        self.budget.pay_for(variables)
        entries = {key: value for key, value in variables.items() if not key.startswith("__")}
        return ConfigDict(entries), imported

    def _import(self, evaluator: Evaluator, node: ast.stmt, module: str, alias: ast.alias, imported: set[str]) -> None:
        """Check an import that is no base's: only a name is made of it."""
        if alias.name == "*" or (isinstance(node, ast.ImportFrom) and node.level):
            raise evaluator.refused(node, "only `with read_base():` may import configs")
        if module.partition(".")[0] in sys.stdlib_module_names:
            raise evaluator.refused(node, f"configs are read, not executed: import of {module} is refused")
        imported.add((alias.asname or alias.name).partition(".")[0])

    def _import_base(self, evaluator: Evaluator, node: ast.stmt, path: Path, imported: set[str], depth: int) -> None:
        if not isinstance(node, ast.ImportFrom) or not node.module:
            raise evaluator.refused(node, "`with read_base():` takes `from ... import ...` only")
        parts = node.module.split(".")
        if node.level:
            base = path.parent.joinpath(*[".."] * (node.level - 1), *parts).with_suffix(".py")
        else:
            inner = parts[2:] if parts[1:2] == ["configs"] else parts[1:]
            base = self._package_file(path, parts[0], "/".join(inner) + ".py")
        if not base.is_file():
            raise evaluator.refused(node, f"there is no base config {base}")
        config, names = self.read_importing(base, depth + 1)
        imported |= names
        for alias in node.names:
            if alias.name == "*":
                evaluator.variables.update(config)
            elif alias.name in config:
                evaluator.variables[alias.asname or alias.name] = config[alias.name]
            else:
                raise evaluator.refused(node, f"{base} does not define {alias.name}")

    def _text(self, path: Path, depth: int) -> str:
        if depth > LONGEST_CHAIN:
            raise ConfigError(f"{path}: more than {LONGEST_CHAIN} configs inherit from one another")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise ConfigError(f"{path}: is larger than {LARGEST_FILE} bytes")
        self.budget.pay(len(data))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: is no text: {error}") from None

    def _substituted(self, path: Path, text: str) -> str:
        """Put the file's own name and environment variables in where ``{{ }}`` asks for them."""
        full = os.path.abspath(path)
        own = {
            "fileDirname": os.path.dirname(full),
            "fileBasename": path.name,
            "fileBasenameNoExtension": path.stem,
            "fileExtname": path.suffix,
        }
        text = re.sub(rf"\{{\{{\s*({'|'.join(own)})\s*\}}\}}", lambda found: own[found[1]].replace("\\", "/"), text)

        def variable(found: re.Match[str]) -> str:
            value = os.environ.get(found[1], found[2])
            if not value:
                raise ConfigError(f"{path}: environment variable {found[1]} is not set, and has no default here")
            return value

        return re.sub(r"""\{\{['"]?\s*\$(\w+)\s*:\s*(\S*?)\s*['"]?\}\}""", variable, text)

    def _loaded(self, path: Path, text: str) -> dict[str, Any]:
        text = re.sub(r"\{\{\s*_base_\.([\w.]+)\s*\}\}", rf'"{_MARK}\1"', text)
        try:
            if path.suffix == ".json":
                loaded = json.loads(text)
            else:
                try:
                    import yaml
                except ModuleNotFoundError:
                    raise ImportError(f"{path} needs PyYAML, which is not installed: pip install pyyaml") from None
                try:
                    loaded = yaml.safe_load(text)
                except yaml.YAMLError as error:
                    raise ValueError(" ".join(str(error).split())) from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        self.budget.pay_for(loaded)
        if not isinstance(loaded, dict):
            raise ConfigError(f"{path}: a config is a mapping, got {type(loaded).__name__}")
        return loaded


_MARK = "mmort:base:"  # stands before the name of a base's variable in JSON and YAML


def _resolved(path: Path, value: Any, bases: ConfigDict) -> Any:
    """Put the bases' variables in."""
    if isinstance(value, str) and value.startswith(_MARK):
        found: Any = bases
        for key in value.removeprefix(_MARK).split("."):
            if not isinstance(found, dict) or key not in found:
                raise ConfigError(f"{path}: the base configs have no {value.removeprefix(_MARK)}")
            found = found[key]
        return found
    if isinstance(value, dict):
        return {key: _resolved(path, item, bases) for key, item in value.items()}
    return [_resolved(path, item, bases) for item in value] if isinstance(value, list) else value


def _parse(path: Path, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno or 1}: is no Python: {error.msg}") from None
    except (MemoryError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: is no Python: {str(error) or 'nested too deeply'}") from None


def _assigns_base(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_base_"


def _imports_bases(tree: ast.Module) -> bool:
    """Tell whether a config is of the new kind; what is neither kind is left for the evaluator to refuse."""
    for node in tree.body:
        if _assigns_base(node):
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


def _scoped(config: dict[str, Any], scope: str) -> dict[str, Any]:
    """Note the package in the outermost dicts with a type, as MMEngine does: there its types are looked up."""
    if "type" in config:
        return config if config.get("_scope_") is not None else {**config, "_scope_": scope}

    def inner(value: Any) -> Any:
        if isinstance(value, dict):
            return _scoped(value, scope)
        return type(value)(map(inner, value)) if isinstance(value, (list, tuple)) else value

    return {key: inner(value) for key, value in config.items()}


def _merge(new: Any, old: Any, allow_places: bool, place: str = "options") -> Any:
    """Merge a config into what it inherits from, as MMEngine does: dicts entry by entry, all else is replaced."""
    if not isinstance(new, dict):
        return new
    merged = old.copy()
    for key, value in new.items():
        if allow_places and isinstance(merged, list) and str(key).isdigit():
            if int(key) >= len(merged):
                raise ConfigError(f"{place}: there is no place {key} in a list of {len(merged)}")
            inner = merged[int(key)]
            merged[int(key)] = _merge(value, inner, True, place) if isinstance(inner, (dict, list)) else value
        elif isinstance(merged, list):
            raise ConfigError(f"{place}: {key!r} is no place in a list")
        elif isinstance(value, dict) and key in merged and not value.pop("_delete_", False):
            if not isinstance(merged[key], (dict, list) if allow_places else dict):
                raise ConfigError(
                    f"{place}: {key} is a dict, but a {type(merged[key]).__name__} where it comes from; "
                    "to replace it, add _delete_=True"
                )
            merged[key] = _merge(value, merged[key], allow_places, place)
        else:
            merged[key] = value
    return merged


def _nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted keys into dicts within dicts."""
    nested: dict[str, Any] = {}
    for name, value in options.items():
        *outer, last = name.split(".")
        place = nested
        for key in outer:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ConfigError(f"options: {name} is within {key}, which has a value")
        place[last] = value
    return nested


def _unshared(value: Any) -> Any:
    """Copy, so that what two places share is merged in each of them for itself."""
    if isinstance(value, dict):
        return type(value)({key: _unshared(item) for key, item in value.items()})
    return type(value)(map(_unshared, value)) if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return str(value) if isinstance(value, Imported) else value
