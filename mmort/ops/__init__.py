"""The numpy API: a module for each family of operators, and how many threads they use, with the names in ``__all__``.

All of them are collected here, and again by `mmort`; type checkers read ``__init__.pyi``, which setup.py writes.
"""

from importlib import import_module
from pkgutil import iter_modules

__all__ = []
for _module in iter_modules(__path__):
    if _module.name.startswith("_"):
        continue
    _family = import_module(f"{__name__}.{_module.name}")
    __all__ += _family.__all__
    globals().update({_name: getattr(_family, _name) for _name in _family.__all__})
