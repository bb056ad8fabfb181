"""Run the tests of MMRotate and MMDeploy over mmort.mmcv and mmort's ONNX Runtime library.

    python -m tests.tools.check_peers mmrotate CHECKOUT [ARGUMENT_OF_PYTEST ...]
    python -m tests.tools.check_peers mmdeploy CHECKOUT [ARGUMENT_OF_PYTEST ...]

CHECKOUT is a working copy of https://github.com/open-mmlab/mmrotate at v1.0.0rc1 or of
https://github.com/open-mmlab/mmdeploy at v1.3.1: the package in it is imported, its tests are run.  mmcv-lite, mmengine
and mmdet must be installed; for MMRotate e2cnn and parameterized, too; for MMDeploy aenum and multiprocess.  The table
at the end counts for each file the tests that passed, failed, were skipped, and called an operator that mmort does not
have.
"""

import collections.abc
import functools
import os
import pathlib
import sys

import numpy as np
import pytest
import torch

import mmort.mmcv
import mmort.ort
from tests.tools.check_mmcv_operators import Table


def prepare_mmrotate():
    """Let MMRotate 1.0.0rc1 be imported by today's Python, with numpy 2 and MMDetection 3.3."""
    for alias in (int, float):
        setattr(np, alias.__name__, alias)
    collections.Sequence = collections.abc.Sequence
    import mmcv
    import mmdet

    mmdet.__version__ = min(mmdet.__version__, "3.1.0")  # the newest that it accepts
    mmcv.__version__ = min(mmcv.__version__, "2.0.1")


def prepare_mmdeploy():
    """Let MMDeploy find mmort's library as its own, and export by the exporter that it was written for."""
    from mmdeploy.backend.onnxruntime import init_plugins, wrapper

    init_plugins.get_ops_path = wrapper.get_ops_path = mmort.ort.library_path
    torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False, autograd_inlining=False)


PEERS = {"mmrotate": (prepare_mmrotate, "tests"), "mmdeploy": (prepare_mmdeploy, "tests/test_ops")}
"""How a peer is made to run, and its tests in a checkout."""


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in PEERS:
        sys.exit(__doc__)
    prepare, folder = PEERS[sys.argv[1]]
    checkout = pathlib.Path(sys.argv[2]).resolve()
    sys.path.insert(0, str(checkout))
    os.chdir(checkout)  # the tests read data there
    prepare()
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(checkout), *sys.argv[3:]]
    sys.exit(pytest.main([*options, str(checkout / folder)], [Table()]))


if __name__ == "__main__":
    main()
