"""Cases and oracles, a module per family of operators: every module in this package is imported."""

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
