"""Compare backbones, necks and plugins with MMDetection's own modules.  Run by hand, as it needs MMDetection.

    pip install --no-deps --target FOLDER mmdet==3.3.0 mmpretrain==1.2.0 mmengine mmcv-lite addict yapf six einops \
        termcolor terminaltables shapely
    python -m tests.tools.check_parts FOLDER [NAME ...]     # compare; with --record, also write what the tests expect
    python -m tests.tools.check_parts export [NAME ...]     # export each at dynamic size; needs no MMDetection

Both sides are built from the same config with the same weights: the cases of tests/detect/part_cases.py, and the
published sizes of RegNet.  mmcv-lite has no compiled operators; where a part needs one, mmort's stands in.  Prints a
line for each part.  Exit code 1 if names, shapes or numbers differ, or an export fails.
"""

from __future__ import annotations

import copy
import importlib.abc
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mmort.torch
from mmort.detect.checkpoint import load_weights
from mmort.detect.loading import PARTS
from mmort.onnx import export
from tests.detect import part_cases
from tests.tools.small_detectors import print_problems, write_record

PYTHON_ONLY = ("carafe", "merge_cells", "multi_scale_deform_attn", "saconv")  # of mmcv.ops; the first has an operator
RECORD = Path(__file__).parents[1] / "data" / "detect" / "parts.json"
REGNETS = [f"regnetx_{size}" for size in ("400mf", "800mf", "1.6gf", "3.2gf", "4.0gf", "6.4gf", "8.0gf", "12gf")]
CASES = [
    *part_cases.CASES,
    *(("backbone", name, {"type": "RegNet", "arch": name}) for name in REGNETS),
]


class Operators(types.ModuleType):
    """Stands for ``mmcv.ops``, or a module in it: any name is a class, mmort's if it has one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kind = globals().get(name) or getattr(mmort.torch, name, None) or type(name, (nn.Module,), {})
        setattr(self, name, kind)
        return kind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call mmort's function where MMCV's hides the module that defines it, as ``nms`` does."""
        return getattr(mmort.torch, self.__name__.rpartition(".")[2])(*args, **kwargs)


def carafe(features: Tensor, masks: Tensor, kernel: int, groups: int, factor: int) -> Tensor:
    """Return what MMCV's operator returns, from columns of all pixels' neighbours."""
    columns = F.unfold(features, kernel, padding=kernel // 2).unflatten(2, features.shape[2:])
    columns = F.interpolate(columns, scale_factor=factor)
    weighted = columns.unflatten(1, (groups, -1, kernel**2)) * masks.unflatten(1, (groups, 1, kernel**2))
    return weighted.sum(3).flatten(1, 2)


class MaskedConv2d(nn.Conv2d):
    """Multiplies by the mask of the first image, as MMCV's layer does for one image."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x) * mask[0].to(x)


class ModulatedDeformConv2d(mmort.torch.ModulatedDeformConv2d):
    """Reads offsets and masks as MMCV's kernel: by the size of its output, whatever theirs."""

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        size = [(side + 2 - 3) // stride + 1 for side, stride in zip(x.shape[2:], self.stride, strict=True)]
        offset, mask = (
            values.flatten(1)[:, : values.shape[1] * size[0] * size[1]].unflatten(1, (values.shape[1], *size))
            for values in (offset, mask)
        )
        return super().forward(x, offset, mask)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Take classes of any type, as MMCV's function."""
    return mmort.torch.batched_nms(boxes, scores, idxs.long(), *arguments)


class OperatorsFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `Operators` as ``mmcv.ops`` and all modules in it that need compiled code."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith("mmcv.ops") or fullname.rpartition(".")[2] in PYTHON_ONLY:
            return None
        spec = ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = [str(Path(self.folder, "mmcv", "ops"))]
        return spec

    def create_module(self, spec: ModuleSpec) -> Operators:
        return Operators(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def mmdetection(folder: str) -> Any:
    """Return MMDetection's registry of modules, imported from a folder."""
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, OperatorsFinder(folder))
    import_module("mmcv.utils.ext_loader").load_ext = lambda name, functions: None
    import_module("mmcv.ops.carafe").carafe = carafe
    import_module("mmcv.ops.saconv")
    attention = import_module("mmcv.ops.multi_scale_deform_attn").MultiScaleDeformableAttention
    import_module("mmcv.ops").MultiScaleDeformableAttention = attention  # type: ignore[attr-defined]
    import_module("mmdet.models")
    from mmdet.registry import MODELS

    # mmpretrain's packages without what their __init__.py import, which needs further packages.
    for name in ("", ".models", ".models.utils", ".models.backbones"):
        package = types.ModuleType(f"mmpretrain{name}")
        package.__path__ = [f"{folder}/mmpretrain{name.replace('.', '/')}"]
        sys.modules[package.__name__] = package
    from mmpretrain.models.utils import norm

    vars(sys.modules["mmpretrain.models.utils"]).update(vars(norm))
    import_module("mmpretrain.models.backbones.convnext")

    return MODELS


def flat(outputs: Any) -> list[Tensor]:
    """Return the tensors of nested tuples and lists."""
    return [outputs] if isinstance(outputs, Tensor) else [tensor for output in outputs for tensor in flat(output)]


def difference(ours: nn.Module, theirs: nn.Module, input: Any) -> str:
    """Return how a part differs from MMDetection's, "" if it does not."""
    part_cases.fill(theirs)
    try:
        load_weights(ours, theirs.state_dict())
    except ValueError as error:
        return str(error)
    with torch.inference_mode():
        wanted, got = flat(theirs(input)), flat(ours(input))
    shapes = [[*tensor.shape] for tensor in wanted], [[*tensor.shape] for tensor in got]
    if shapes[0] != shapes[1]:
        return f"shapes {shapes[1]}, MMDetection's {shapes[0]}"
    for index, (first, second) in enumerate(zip(got, wanted, strict=True)):
        far, size = float((first - second).abs().max()), float(second.abs().max())
        if not far <= 1e-4 * size:
            return f"output {index} differs by {far:.1e} of {size:.1e}"
    return ""


def compare(folder: str, cases: list[Any], record: bool) -> Iterator[tuple[str, str]]:
    """Yield each part's name and how it differs from MMDetection's."""
    registry, recorded = mmdetection(folder), {}
    for kind, name, config in cases:
        theirs = registry.build(copy.deepcopy(config))
        theirs.eval()  # some of them return None
        input = part_cases.inputs(kind, name)
        yield f"{kind} {name}", difference(PARTS.build(kind, config).eval(), theirs, input)
        if record and name not in REGNETS:
            with torch.inference_mode():
                outputs = part_cases.summary(theirs(input))
            recorded[f"{kind} {name}"] = {"names": part_cases.names(theirs), "outputs": outputs}
    if record:
        write_record(RECORD, recorded)


class Maps(nn.Module):
    """Maps of four sizes for a neck, made from an image, and the image if the neck takes it."""

    def __init__(self, neck: nn.Module, *, recursive: bool) -> None:
        super().__init__()
        sides = [3, *(4 * count if recursive else count for count in part_cases.PYRAMID)]
        self.recursive = recursive
        pairs = zip(sides, sides[1:], (4, 2, 2, 2), strict=False)
        self.convs = nn.ModuleList(nn.Conv2d(before, after, 3, step, padding=1) for before, after, step in pairs)
        self.neck = neck

    def forward(self, x: Tensor) -> Any:
        maps = [x] if self.recursive else []
        for conv in self.convs:
            x = conv(x)
            maps.append(x)
        return self.neck(tuple(maps))


def exports(cases: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield each part's name and why it cannot be exported for any size."""
    for kind, name, config in cases:
        if "output_img" in config:  # an output that is the input cannot be exported
            config = {**config, "output_img": False}
        module = PARTS.build(kind, config).eval()
        part_cases.fill(module)
        if kind == "neck":
            module = Maps(module, recursive=name == "rfp").eval()
        square = "square" in name
        sizes = [(2, 192, 256), (1, 128, 224), (3, 288, 160)] if not square else [(2, 192, 192), (1, 256, 256)]
        args, *checks = [(torch.randn(batch, 3, *size),) for batch, *size in sizes]
        shapes = ({0: "batch", 2: "height", 3: "height" if square else "width"},)
        begin = time.perf_counter()
        problem = ""
        with tempfile.TemporaryDirectory() as folder:
            try:
                export(module, args, Path(folder, "part.onnx"), dynamic_shapes=shapes, check_sizes=checks, rtol=1e-2)
            except (ValueError, RuntimeError) as error:
                problem = str(error)
        yield f"{kind} {name} ({time.perf_counter() - begin:.0f} s)", problem


def main(folder: str, *arguments: str) -> int:
    names = [argument for argument in arguments if argument != "--record"]
    cases = [case for case in CASES if not names or case[1] in names]
    result = exports(cases) if folder == "export" else compare(folder, cases, "--record" in arguments)
    return print_problems(result)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
