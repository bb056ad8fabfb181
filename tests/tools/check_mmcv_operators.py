"""Run MMCV's own tests of its operators over mmort.mmcv.

    python -m tests.tools.check_mmcv_operators CHECKOUT [--cuda-as-cpu] [ARGUMENT_OF_PYTEST ...]

CHECKOUT is a working copy of https://github.com/open-mmlab/mmcv at v2.1.0, of which only the tests and their data are
read; mmcv-lite 2.1.0 must be installed.  Most of the tests ask for CUDA and are skipped.  With --cuda-as-cpu they run:
every device "cuda" is the CPU, and torch and MMCV believe that there is a GPU.  The table at the end counts for each
file the tests that passed, failed, were skipped, and called an operator that mmort does not have.
"""

import collections
import functools
import os
import pathlib
import sys

import pytest
import torch
from torch.overrides import TorchFunctionMode


class CudaIsCpu(TorchFunctionMode):
    """Puts on the CPU what is asked to be on a GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.cuda:
            return args[0]
        if function == torch.Tensor.is_cuda.__get__:
            return True
        if function is torch.Tensor.get_device:
            return 0
        return function(*map(on_cpu, args), **{name: on_cpu(value) for name, value in (kwargs or {}).items()})


def on_cpu(value):
    """Return the CPU for a device that is a GPU, other values as they are."""
    is_device = isinstance(value, (str, torch.device))
    return torch.device("cpu") if is_device and str(value).startswith("cuda") else value


def pretend_cuda():
    """Let torch and MMCV believe that there is a GPU."""
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None
    for name in ("IntTensor", "LongTensor", "FloatTensor", "DoubleTensor", "HalfTensor"):
        setattr(torch.cuda, name, getattr(torch, name))
    torch.version.cuda = "12.0"
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    import mmcv.utils

    mmcv.utils.IS_CUDA_AVAILABLE = True
    CudaIsCpu().__enter__()


class Table:
    """Counts the outcomes of each file's tests."""

    def __init__(self):
        self.files = collections.defaultdict(collections.Counter)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        if report.when == "call" or report.outcome == "skipped":
            missing = call.excinfo is not None and call.excinfo.errisinstance(NotImplementedError)
            ours = missing and "not implemented by mmort" in str(call.excinfo.value)
            self.files[item.path.name]["not implemented" if ours else report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter):
        columns = ["passed", "failed", "not implemented", "skipped"]
        terminalreporter.write_line(f"| file | {' | '.join(columns)} |\n|-|{'-|' * len(columns)}")
        total = collections.Counter()
        for name, counts in [*sorted(self.files.items()), ("all", total)]:
            total += counts if name != "all" else {}
            terminalreporter.write_line(f"| {name} | {' | '.join(str(counts[column]) for column in columns)} |")


def main():
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(__doc__)
    import mmort.mmcv  # noqa: F401

    if "--cuda-as-cpu" in arguments:
        arguments.remove("--cuda-as-cpu")
        pretend_cuda()
    # The exporter that was torch's only one when the tests were written; MMCV's operators have no other translation.
    # Inlining, torch looks for a translation of what runs inside of functions that have one of their own.
    torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False, autograd_inlining=False)
    os.chdir(arguments[0])  # the tests read data there
    tests = pathlib.Path("tests/test_ops").resolve()
    sys.exit(
        pytest.main(
            ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tests), str(tests), *arguments[1:]],
            [Table()],
        )
    )


if __name__ == "__main__":
    main()
