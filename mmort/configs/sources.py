"""Config files: read their text, fill in file names and environment variables, and parse it."""

from __future__ import annotations

import ast
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

from mmort._files.inputs import open_regular
from mmort.configs.budget import BYTE, FILE, YAML_EVENT, Budget
from mmort.configs.errors import ConfigError
from mmort.limits import MAX_CONFIG_BYTES, MAX_CONFIG_DEPTH, MAX_YAML_NUMBER

SUFFIXES = (".py", ".json", ".yaml", ".yml")

_REFERENCE = "mmort:base:"  # marks text in JSON and YAML that is the name of a base's variable


def read_text(path: Path, budget: Budget) -> str:
    """Read a file of UTF-8 text."""
    budget.pay(FILE)
    with open_regular("config", path) as file:
        data = file.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES} bytes")
    budget.pay(len(data) * BYTE)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file: {error}") from None


def substitute(path: Path, text: str, budget: Budget) -> str:
    """Replace ``{{ fileDirname }}`` and the like, and ``{{$VARIABLE:default}}``, by their values."""
    full = os.path.abspath(path)
    names = {
        "fileDirname": os.path.dirname(full),
        "fileBasename": path.name,
        "fileBasenameNoExtension": path.stem,
        "fileExtname": path.suffix,
    }

    def name(match: re.Match[str]) -> str:
        budget.pay(len(names[match[1]]) * BYTE)
        return names[match[1]].replace("\\", "/")

    def variable(match: re.Match[str]) -> str:
        value = os.environ.get(match[1], match[2])
        if not value:
            raise ConfigError(f"{path}: environment variable {match[1]} is not set, and has no default here")
        budget.pay(len(value) * BYTE)
        return value

    text = re.sub(rf"\{{\{{\s*({'|'.join(names)})\s*\}}\}}", name, text)
    # (?=\S) and [^\s{] keep the matching linear: no space, and no character of a value, is tried in two ways.
    return re.sub(r"""\{\{['"]?\s*\$(\w+)\s*:\s*(?=\S)([^\s{]*?)\s*['"]?\}\}""", variable, text)


def parse_python(path: Path, text: str) -> ast.Module:
    """Parse the text of a ``.py`` file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes that Python does not know, which MMDetection reads as well
            return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno or 1}: not valid Python: {error.msg}") from None
    except ValueError as error:  # null bytes, of which Python before 3.11.4 gives no line
        raise ConfigError(f"{path}:1: not valid Python: {error}") from None
    except (MemoryError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid Python: {str(error) or 'nested too deeply'}") from None


def parse_data(path: Path, text: str, budget: Budget) -> dict[str, Any]:
    """Parse the text of a JSON or YAML file; references to the bases' variables are left to `resolve`."""
    text = re.sub(r"\{\{\s*_base_\.([\w.]+)\s*\}\}", rf'"{_REFERENCE}\1"', text)
    try:
        data = json.loads(text) if path.suffix == ".json" else parse_yaml(path, text, budget)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    budget.pay_for(data)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a config must be a mapping, got {type(data).__name__}")
    return data


def parse_yaml(path: Path, text: str, budget: Budget) -> Any:
    """Parse YAML without tags that construct objects."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise ImportError(f"{path} needs PyYAML, which is not installed: pip install pyyaml") from None
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            budget.pay(YAML_EVENT)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_CONFIG_DEPTH:
                raise ValueError(f"containers are nested more than {MAX_CONFIG_DEPTH} deep")
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _pay_for_nodes(root, budget)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:  # for values unlike their tags
        raise ValueError(f"a value does not fit its tag: {type(error).__name__}: {error}") from None


def _pay_for_nodes(root: Any, budget: Budget) -> None:
    """Pay for constructing a YAML node, each of its aliases as for the node itself; refuse long numbers."""
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        budget.pay(1)
        if depth > MAX_CONFIG_DEPTH:
            raise ValueError(f"containers are nested more than {MAX_CONFIG_DEPTH} deep")
        if isinstance(node.value, list):
            items = [item for entry in node.value for item in (entry if isinstance(entry, tuple) else (entry,))]
            stack += [(item, depth + 1) for item in items]
        elif node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and len(node.value) > MAX_YAML_NUMBER:
            raise ValueError(f"numbers of more than {MAX_YAML_NUMBER} characters are refused")


def resolve(path: Path, value: Any, bases: dict[str, Any]) -> Any:
    """Replace references to the bases' variables, in data that `parse_data` returned, by their values."""
    if isinstance(value, str) and value.startswith(_REFERENCE):
        name = value.removeprefix(_REFERENCE)
        target: Any = bases
        for key in name.split("."):
            if not isinstance(target, dict) or key not in target:
                raise ConfigError(f"{path}: the base configs do not define {name}")
            target = target[key]
        return target
    if isinstance(value, dict):
        return {key: resolve(path, item, bases) for key, item in value.items()}
    return [resolve(path, item, bases) for item in value] if isinstance(value, list) else value
