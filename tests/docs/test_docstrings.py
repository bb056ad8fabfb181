"""The examples in the docstrings run and print what they show."""

import doctest
import importlib
import importlib.machinery
import pkgutil

import pytest

import mmort

MODULES = ["mmort"] + [
    info.name
    for info in pkgutil.walk_packages(mmort.__path__, "mmort.")
    if isinstance(info.module_finder.find_spec(info.name).loader, importlib.machinery.SourceFileLoader)
    and not info.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_every_public_function_has_an_example():
    for name in mmort.__all__:
        assert ">>>" in getattr(mmort, name).__doc__, name
