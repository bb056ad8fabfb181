"""MMDetection's configs, 2.x and 3.x: read without executing them, and what their entries are.  None of it needs torch.

`read_config` returns what ``mmengine.Config.fromfile`` does, but evaluates a config from its syntax tree.  Nothing is
executed or imported; what is not listed here is refused with a `ConfigError` that names file and line.

**Files.** ``.py``, ``.json``, ``.yaml`` and ``.yml``.  ``{{ fileDirname }}``, ``{{ fileBasename }}``,
``{{ fileBasenameNoExtension }}``, ``{{ fileExtname }}`` and ``{{$VARIABLE:default}}`` (an environment variable) are
filled in first.

**Inheritance.** Two kinds of configs:

* ``_base_ = 'path'``, or a list of paths, or ``'package::path'``: the config is merged into its bases, dictionaries
  entry by entry; ``_delete_=True`` replaces one.  ``_base_.variable`` and ``{{ _base_.variable }}`` are the bases'
  variables.
* ``with read_base(): from .path import *``: variables of the bases become the config's own.  Other imports make dotted
  names (``"mmdet.models.RetinaNet"``); those from the standard library are refused.

**Statements.** Assignments (also ``+=`` and the like, to elements, to several names), ``del``, ``if``, ``for``,
``pass``, expressions.

**Expressions.** Constants, names, lists, tuples, sets, dictionaries, ``*`` and ``**``, comprehensions, conditions,
arithmetic, comparisons, ``and``, ``or``, ``not``, elements and slices, f-strings without wide fields, attributes of
base dictionaries, and calls of the functions and methods that ``mmort.configs.expressions`` lists (``dict``,
``range``, ``len``, ``str.format``, ``list.append`` ...).

**Limits.** Regular files of 128 kB and 200 kB in all, chains of 20 bases, integers of 64 bits, keys that are text or
numbers, and 2 million steps in all, more than twice what the largest published config takes: whatever a file holds, it
is read or refused within 2 seconds and 500 MB.
"""

from mmort.configs.errors import ConfigError
from mmort.configs.overrides import parse_options
from mmort.configs.reader import read_config
from mmort.configs.test_pipeline import register_step

__all__ = ["ConfigError", "parse_options", "read_config", "register_step"]
