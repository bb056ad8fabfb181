"""Config files: read their text, fill in file names and environment variables, and parse it."""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

from mmort.detect.config.budget import Budget
from mmort.detect.config.errors import ConfigError

MAX_FILE_SIZE = 1_000_000  # bytes
SUFFIXES = (".py", ".json", ".yaml", ".yml")

_REFERENCE = "mmort:base:"  # marks text in JSON and YAML that is the name of a base's variable


def read_text(path: Path, budget: Budget) -> str:
    """Read a file of UTF-8 text."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_SIZE + 1)
    if len(data) > MAX_FILE_SIZE:
        raise ConfigError(f"{path}: larger than {MAX_FILE_SIZE} bytes")
    budget.pay(len(data))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file: {error}") from None


def substitute(path: Path, text: str) -> str:
    """Replace ``{{ fileDirname }}`` and the like, and ``{{$VARIABLE:default}}``, by their values."""
    full = os.path.abspath(path)
    names = {
        "fileDirname": os.path.dirname(full),
        "fileBasename": path.name,
        "fileBasenameNoExtension": path.stem,
        "fileExtname": path.suffix,
    }
    text = re.sub(rf"\{{\{{\s*({'|'.join(names)})\s*\}}\}}", lambda match: names[match[1]].replace("\\", "/"), text)

    def variable(match: re.Match[str]) -> str:
        value = os.environ.get(match[1], match[2])
        if not value:
            raise ConfigError(f"{path}: environment variable {match[1]} is not set, and has no default here")
        return value

    return re.sub(r"""\{\{['"]?\s*\$(\w+)\s*:\s*(\S*?)\s*['"]?\}\}""", variable, text)


def parse_python(path: Path, text: str) -> ast.Module:
    """Parse the text of a ``.py`` file."""
    try:
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
        data = json.loads(text) if path.suffix == ".json" else _parse_yaml(path, text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    budget.pay_for(data)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a config must be a mapping, got {type(data).__name__}")
    return data


def _parse_yaml(path: Path, text: str) -> Any:
    """Parse YAML without tags that construct objects."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise ImportError(f"{path} needs PyYAML, which is not installed: pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def resolve(path: Path, value: Any, bases: dict[str, Any]) -> Any:
    """Replace references to the bases' variables, in data that `parse_data` returned, by their values."""
    if isinstance(value, str) and value.startswith(_REFERENCE):
        name = value.removeprefix(_REFERENCE)
        found: Any = bases
        for key in name.split("."):
            if not isinstance(found, dict) or key not in found:
                raise ConfigError(f"{path}: the base configs do not define {name}")
            found = found[key]
        return found
    if isinstance(value, dict):
        return {key: resolve(path, item, bases) for key, item in value.items()}
    return [resolve(path, item, bases) for item in value] if isinstance(value, list) else value
