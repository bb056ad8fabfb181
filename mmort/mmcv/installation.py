"""Making ``mmcv._ext`` importable."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

from mmort.mmcv import ext_module

NAME = "mmcv._ext"


class Finder(MetaPathFinder, Loader):
    """Finds and makes the module ``mmcv._ext``, and no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's specification, None for other modules."""
        return ModuleSpec(NAME, self, origin="mmort.mmcv") if fullname == NAME else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with functions."""
        vars(module).update(ext_module.functions())


def install() -> bool:
    """Make mmort's operators MMCV's, unless MMCV was compiled with operators that load.

    Importing `mmort.mmcv` calls it.  It warns if MMCV is not installed, or if its own operators do not load.

    Returns
    -------
    bool
        Whether MMCV's operators are mmort's now.

    Examples
    --------
    >>> import mmort.mmcv
    >>> mmort.mmcv.install()
    True
    >>> from mmcv._ext import get_compiling_cuda_version  # doctest: +SKIP
    """
    installed = any(isinstance(finder, Finder) for finder in sys.meta_path)
    if installed or _compiled_operators_load():
        return installed
    sys.meta_path.insert(0, Finder())
    return True


def _compiled_operators_load() -> bool:
    """Return whether MMCV is installed with compiled operators that can be imported."""
    package = find_spec("mmcv")
    if package is None:
        warnings.warn("mmort.mmcv: MMCV's Python half is not installed: pip install mmcv-lite", stacklevel=4)
        return False
    if PathFinder.find_spec(NAME, package.submodule_search_locations) is None:
        return False
    try:
        importlib.import_module(NAME)
    except ImportError as error:  # compiled for another torch
        warnings.warn(f"mmort.mmcv: MMCV's operators do not load, mmort's replace them: {error}", stacklevel=4)
        return False
    return True
