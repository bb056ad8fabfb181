"""Run the tests of MMRotate, MMDeploy and torchvision over mmort.mmcv, mmort's ONNX Runtime library and mmort.torch.

    python -m tests.tools.check_peers mmrotate CHECKOUT [ARGUMENT_OF_PYTEST ...]
    python -m tests.tools.check_peers mmdeploy CHECKOUT [ARGUMENT_OF_PYTEST ...]
    python -m tests.tools.check_peers torchvision CHECKOUT [ARGUMENT_OF_PYTEST ...]

CHECKOUT is a working copy of https://github.com/open-mmlab/mmrotate at v1.0.0rc1, of
https://github.com/open-mmlab/mmdeploy at v1.3.1, whose packages are imported, or of https://github.com/pytorch/vision,
of which only test/test_ops.py is read.  For the first two mmcv-lite, mmengine and mmdet must be installed; for MMRotate
e2cnn and parameterized, too; for MMDeploy aenum and multiprocess.  The table at the end counts for each file the tests
that passed, failed, were skipped, and called an operator that mmort does not have.
"""

import collections.abc
import functools
import os
import pathlib
import sys
import types

import numpy as np
import pytest
import torch

import mmort.mmcv
import mmort.ort
from tests.tools import torchvision_ops
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


def prepare_torchvision():
    """Put mmort's operators into the place of torchvision's; tests that script a function call it."""
    torchvision = types.ModuleType("torchvision")
    torchvision.ops, torchvision.models = torchvision_ops, types.SimpleNamespace()
    extraction, helpers = (types.ModuleType(name) for name in ("torchvision.models.feature_extraction", "common_utils"))
    extraction.get_graph_node_names = None
    helpers.needs_cuda = helpers.needs_mps = pytest.mark.skip("there is no GPU")
    helpers.cpu_and_gpu = helpers.cpu_and_cuda = helpers.cpu_and_cuda_and_mps = lambda: ("cpu",)
    helpers.assert_equal = functools.partial(torch.testing.assert_close, rtol=0, atol=0)
    for module in (torchvision, extraction, helpers):
        sys.modules[module.__name__] = module
    torch.jit.script = lambda function: function
    torch.manual_seed(0)  # of equal scores torchvision's own sort takes any first


PEERS = {
    "mmrotate": (prepare_mmrotate, "tests", []),
    "mmdeploy": (prepare_mmdeploy, "tests/test_ops", []),
    "torchvision": (
        prepare_torchvision,
        "test/test_ops.py",
        ["-k", "TestRoIAlign or TestNMS or TestDeformConv or TestBoxIou"],
    ),
}
"""How a peer is made to run, its tests in a checkout, and arguments of pytest: torchvision has other operators, too."""


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in PEERS:
        sys.exit(__doc__)
    prepare, tests, chosen = PEERS[sys.argv[1]]
    checkout = pathlib.Path(sys.argv[2]).resolve()
    sys.path.insert(0, str(checkout))
    os.chdir(checkout)  # the tests read data there
    prepare()
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(checkout), *chosen, *sys.argv[3:]]
    sys.exit(pytest.main([*options, str(checkout / tests)], [Table()]))


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a process that MMRotate's metric starts
    PEERS[sys.argv[1]][0]()
