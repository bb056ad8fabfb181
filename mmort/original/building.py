"""From a parsed config and a checkpoint to the original's model, which its package builds."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.packages import MMDETECTION, PACKAGES, Package
from mmort.configs.schema import Config, plain_type
from mmort.configs.value_types import Imported
from mmort.detect.checkpoint import MAX_LISTED, load_checkpoint
from mmort.original.packages import import_package

_NOT_TESTED = "auxiliary_head.", "data_preprocessor."
"""The prefixes of weights that are not used in a test."""


@dataclass(frozen=True)
class Original:
    """A model of a package.

    Attributes
    ----------
    model : nn.Module
        In evaluation mode.
    config : Config
        As `mmort.configs.read_config` returns it.
    package : Package
    classes : tuple of str
        Empty if neither checkpoint nor data set names them.
    palette : tuple of tuple of int, or None
        The colour of each class, red, green, blue.
    """

    model: Any
    config: Config
    package: Package
    classes: tuple[str, ...] = ()
    palette: tuple[tuple[int, int, int], ...] | None = None

    @property
    def family(self) -> str:
        """The types of its head and its backbone."""
        model = DetectorConfig(self.config).outer_model
        head = model.get("decode_head") or model.get("head") or {}
        head = head[-1] if isinstance(head, (list, tuple)) else head
        kinds = [plain_type(part["type"]) for part in (head, model.get("backbone") or {}) if "type" in part]
        return " on ".join(kinds) or plain_type(model.get("type"))

    @property
    def dataset_type(self) -> Any:
        """The class of the config's first test data set; None if its package does not have it."""
        with contextlib.suppress(ValueError):
            kind = DetectorConfig(self.config).test_data_sets[0].get("type")
            return import_package(self.package).DATASETS.get(str(kind))
        return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what the packages print and warn of: deprecations, and that weights are random."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging = importlib.import_module("logging")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


@contextlib.contextmanager
def without_deprecations() -> Iterator[None]:
    """Drop warnings of names that torch will not have any more, which the packages and torch's own exporter use."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield


def build(config: Config, package: Package) -> Original:
    """Let the package build the model of a config, with random weights.

    Raises
    ------
    ImportError
        If a package is missing.
    ValueError
        If the config has no model, or the package cannot build it.
    """
    layout = DetectorConfig(config)
    described_model = layout.outer_model
    if "student_cfg" in described_model:  # DWPose's
        raise ValueError(
            f"export: model.type {plain_type(described_model.get('type'))} trains a model by another one; export "
            f"{described_model['student_cfg']} instead, with the weights that MMPose's pth_transfer.py takes from "
            "the checkpoint"
        )
    registry = import_package(package)
    _import_parts(config, package)
    from mmengine.config import ConfigDict
    from mmengine.registry import init_default_scope

    model = described(described_model)
    if layout.data_preprocessor_entries is not None:
        model |= {"data_preprocessor": described(layout.data_preprocessor_entries)}
    try:
        with quiet():
            init_default_scope(package.module)
            built: nn.Module = registry.MODELS.build(ConfigDict(model))
            built.eval()  # whose result is None where a model's own train() returns nothing
    except Exception as error:  # of any code of the package
        raise ValueError(f"export: {package.name} cannot build the config's model: {_one_line(error)}") from error
    return Original(built.requires_grad_(False), config, package)


def load(original: Original, checkpoint: str | os.PathLike[str]) -> Original:
    """Return the original with a checkpoint's weights, classes and palette.

    Raises
    ------
    ValueError
        If the checkpoint cannot be read, or has not the weights of the model.
    """
    weights, meta = load_checkpoint(checkpoint)
    wanted = original.model.state_dict()
    if not wanted.keys() & weights.keys():
        raise ValueError(
            f"{checkpoint}: is of another model: it has none of the weights of the config's, such as "
            f"{next(iter(wanted), 'any')}; its first is {next(iter(weights), 'missing')}"
        )
    with quiet():
        try:
            missing, unexpected = original.model.load_state_dict(weights, strict=False)
        except RuntimeError as error:  # of shapes, of which torch lists all
            lines = (line.strip() for line in str(error).splitlines())
            first = next((line for line in lines if "size mismatch" in line), _one_line(error))
            raise ValueError(f"{checkpoint}: is not of the config's model: {first}") from None
    for kind, names in (("lacks", missing), ("has besides", unexpected)):
        names = [name for name in names if not name.startswith(_NOT_TESTED)]
        if names:
            more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
            listed = ", ".join(names[:MAX_LISTED])
            raise ValueError(f"{checkpoint}: is not of the config's model: it {kind} the weights {listed}{more}")
    named = meta.get("dataset_meta")
    of_type = getattr(original.dataset_type, "METAINFO", {})
    classes = meta.get("classes") or _classes_of(original.config) or of_type.get("classes") or ()
    palette = (named.get("palette") if isinstance(named, Mapping) else None) or of_type.get("palette")
    return Original(
        original.model, original.config, original.package, tuple(map(str, classes)), _palette(palette, len(classes))
    )


def _classes_of(config: Config) -> Any:
    """Return the names of classes that the config's first test data set states."""
    with contextlib.suppress(ValueError):
        info = DetectorConfig(config).test_data_sets[0].get("metainfo")
        return info.get("classes") if isinstance(info, Mapping) else None
    return None


def _palette(palette: Any, count: int) -> tuple[tuple[int, int, int], ...] | None:
    """Return the colours of classes, if there is one for each."""
    if not isinstance(palette, (list, tuple)) or len(palette) != count or not count:
        return None
    try:
        colours = tuple((int(red), int(green), int(blue)) for red, green, blue in palette)
    except (OverflowError, TypeError, ValueError):
        return None
    return colours if all(0 <= level <= 255 for colour in colours for level in colour) else None


def _import_parts(config: Config, package: Package) -> None:
    """Import the packages that the config names, in ``custom_imports`` or before a type, if they are OpenMMLab's."""
    packages = PACKAGES | {MMDETECTION.module: MMDETECTION}
    entry = config.get("custom_imports") or {}
    if not isinstance(entry, Mapping):
        raise ValueError(f"export: custom_imports must be a dict with imports, got {entry!r:.60}")
    imports = entry.get("imports") or ()
    names = (imports,) if isinstance(imports, str) else imports
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"export: imports of custom_imports must be text or a list of text, got {imports!r:.60}")
    for name in names:
        module = name.partition(".")[0]
        if module not in packages:
            raise ValueError(
                f"export: custom_imports of {name!r} is not followed, as only OpenMMLab's packages are; "
                f"--import FILE.py runs a file that registers parts of your own in {package.name}'s registries"
            )
        import_package(packages[module])
    if any(kind.startswith("mmdet.") for kind in _types(DetectorConfig(config).outer_model)):
        import_package(MMDETECTION)


def _types(value: Any) -> Iterator[str]:
    """Yield the names of types in a part of a config."""
    if isinstance(value, Mapping):
        if isinstance(value.get("type"), str):
            yield value["type"]
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for entry in value:
            yield from _types(entry)


def described(value: Any) -> Any:
    """Return a part of a config as the packages take it: with imported objects, and without weights to download."""
    if isinstance(value, Mapping):
        entries = {key: described(entry) for key, entry in value.items() if key != "init_cfg"}
        return entries | ({"pretrained": None} if isinstance(entries.get("pretrained"), (str, bool)) else {})
    if isinstance(value, (list, tuple)):
        return type(value)(map(described, value))
    if isinstance(value, Imported):
        return _imported(value)
    return value


def _imported(name: Imported) -> Any:
    """Return the object that a config imports from one of OpenMMLab's packages, or from torch."""
    module, _, attribute = name.rpartition(".")
    if module.partition(".")[0] not in (*PACKAGES, "mmengine", "mmcv", "mmdet", "torch"):
        raise ValueError(f"export: {name}, which the config imports, is not of OpenMMLab's packages")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"export: {name}, which the config imports, cannot be: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    """Return an error's first lines as one."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
