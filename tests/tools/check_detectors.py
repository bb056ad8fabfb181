"""Compare detectors with MMDetection's own results.  Run by hand, as the data is not in the repository.

    python -m tests.tools.check_detectors digits FOLDER [FAMILY ...]
    python -m tests.tools.check_detectors oracle FOLDER [FAMILY ...]
    python -m tests.tools.check_detectors oracle3 FOLDER [FAMILY ...] [--files FOLDER] [--save FOLDER]
    python -m tests.tools.check_detectors oracle_rotated FOLDER [FAMILY ...] [--files FOLDER] [--save FOLDER]

`digits` has checkpoints, images and results of small detectors; `oracle` full-size ones with weights from a recipe, by
MMDetection 2; `oracle3` likewise, by MMDetection 3; `oracle_rotated` by MMRotate 0.3.4.  With ``--files``, exported
files FAMILY.onnx are compared instead of torch; ``--save`` writes checkpoints FAMILY.pth to export them from.
Prints a line for each image that differs, where in the network the difference starts, and a summary for each family.
Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor

import mmort.ort
from mmort.configs import read_config
from mmort.detect import Detector, build, load
from mmort.detect.checkpoint import load_weights
from mmort.detect.families.dense.cornernet import CornerNet
from mmort.detect.families.masks.solo import SOLO
from mmort.detect.loading import PARTS
from mmort.detections.masks import ImageMasks, put
from mmort.detections.matching import match_detections
from mmort.predict import MaskFormat, Prepared, Preprocessing

Array = NDArray[Any]
Network = Callable[[Array, Array], list[Array]]
"""From ``input`` and ``img_shape`` to dets, labels and perhaps masks."""

LOW_SCORES = ("rtmdet_s", "yolox", "htc")
"""Families whose detections have scores so low that they are compared relatively."""

ANGLE = 1e-3
"""Tolerance of the angles of rotated boxes, in radians, modulo half a turn."""


@dataclass
class Found:
    """Detections in an image: boxes and scores [K, 5] or [K, 6], labels [K], and perhaps masks [K, H, W]."""

    dets: Array
    labels: Array
    masks: Array | None = None


@dataclass
class Difference:
    """How two sets of detections differ."""

    ours: int
    theirs: int
    unmatched: list[str]
    box: float = 0.0
    score: float = 0.0
    mask: float = 1.0
    angle: float = 0.0

    @property
    def equal(self) -> bool:
        return self.ours == self.theirs and not self.unmatched


def compare(ours: Found, theirs: Found, box: float, score: float | Array, mask: float = 0.01) -> Difference:
    """Match detections within the tolerances, that of a box growing with its size, and list those without a match.

    Of a mask's pixels one may differ, or the share `mask` of them, rounded up.
    """
    ours_dets, theirs_dets = ours.dets, theirs.dets
    if theirs_dets.shape[1] == 6:
        return _compare_rotated(ours, theirs, box, score)
    if len(theirs_dets) and not theirs_dets[:, :4].any():  # SOLO has masks only
        ours_dets, theirs_dets, box = _with_spreads(ours), _with_spreads(theirs), 1.0
    sides = (theirs_dets[:, 2:4] - theirs_dets[:, :2]).max(1, initial=1)
    matches = match_detections(
        ours_dets,
        ours.labels,
        theirs_dets,
        theirs.labels,
        box_tolerance=np.maximum(box, sides * box / 10),
        score_tolerance=score,
    )
    difference = Difference(len(ours.dets), len(theirs.dets), [])
    for index, match in enumerate(matches):
        detection = f"{theirs.labels[index]} {np.round(theirs.dets[index], 4).tolist()}"
        if match < 0:
            difference.unmatched.append(f"missing {detection}")
            continue
        off = np.abs(ours.dets[match] - theirs.dets[index])
        difference.box, difference.score = max(difference.box, off[:4].max()), max(difference.score, off[4])
        if ours.masks is not None and theirs.masks is not None:
            first, second = ours.masks[match], theirs.masks[index]
            union, wrong = (first | second).sum(), (first != second).sum()
            overlap = float(1 - wrong / union) if union else 1.0
            difference.mask = min(difference.mask, overlap)
            if wrong > max(1, math.ceil(mask * union)):
                difference.unmatched.append(f"mask of {detection}: IoU {overlap:.4f}")
    for index in np.setdiff1d(np.arange(len(ours.dets)), matches):
        difference.unmatched.append(f"extra {ours.labels[index]} {np.round(ours.dets[index], 4).tolist()}")
    return difference


def _compare_rotated(ours: Found, theirs: Found, box: float, score: float | Array) -> Difference:
    """Match rotated boxes by centre, sides and angle; the tolerance of centre and sides grows with the longer side."""
    difference = Difference(len(ours.dets), len(theirs.dets), [])
    scores = np.broadcast_to(score, len(theirs.dets))
    free = np.ones(len(ours.dets), bool)
    for index, expected in enumerate(theirs.dets):
        off = np.abs(ours.dets - expected)
        off[:, 4] = np.minimum(off[:, 4] % np.pi, np.pi - off[:, 4] % np.pi)
        limit = max(box, expected[2:4].max() * box / 10)
        angle = ANGLE * scores[index] / 5e-4  # a detector with looser scores has looser angles
        fits = free & (ours.labels == theirs.labels[index]) & (off[:, :4].max(1, initial=0) <= limit)
        fits &= (off[:, 4] <= angle) & (off[:, 5] <= scores[index])
        if not fits.any():
            difference.unmatched.append(f"missing {theirs.labels[index]} {np.round(expected, 4).tolist()}")
            continue
        match = np.flatnonzero(fits)[off[fits, :4].max(1).argmin()]
        free[match] = False
        difference.box, difference.score = (
            max(difference.box, off[match, :4].max()),
            max(difference.score, off[match, 5]),
        )
        difference.angle = max(difference.angle, off[match, 4])
    for index in np.flatnonzero(free):
        difference.unmatched.append(f"extra {ours.labels[index]} {np.round(ours.dets[index], 4).tolist()}")
    return difference


def score_tolerance(family: str, theirs: Found) -> float | Array:
    """Return how far a full-size detector's scores may be from the expected ones."""
    if family == "roi_trans":
        return 1e-3
    return 1e-4 + 1e-2 * theirs.dets[:, 4] if family.startswith(LOW_SCORES) else 5e-4


def _with_spreads(actual: Found) -> Array:
    """Return detections whose boxes are the means and deviations of their masks' pixels."""
    assert actual.masks is not None
    dets = actual.dets.copy()
    for det, mask in zip(dets, actual.masks, strict=True):
        pixels = np.argwhere(mask) if mask.any() else np.zeros((1, 2))
        det[:4] = *(pixels.mean(0) - pixels.std(0)), *(pixels.mean(0) + pixels.std(0))
    return dets


def run_torch(detector: Detector) -> Network:
    """Return a function that runs a detector."""

    def run(batch: Array, shapes: Array) -> list[Array]:
        with torch.inference_mode():
            return [output.numpy() for output in detector(torch.from_numpy(batch), torch.from_numpy(shapes))]

    return run


def run_file(path: Path, threads: int = 1) -> Network:
    """Return a function that runs an exported detector."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = mmort.ort.session(path, sess_options=options, providers=["CPUExecutionProvider"])
    return lambda batch, shapes: session.run(None, {"input": batch, "img_shape": shapes})


def detect(
    network: Network, mask_format: MaskFormat, batch: Array, metas: list[dict[str, Any]], rescale: bool
) -> list[Found]:
    """Run a network on a batch; with `rescale` return detections in the original images, otherwise in the resized."""
    outputs = network(batch, np.array([meta["img_shape"][:2] for meta in metas]))
    result = []
    for meta, dets, labels, *masks in zip(metas, *outputs, strict=True):
        used = labels >= 0
        scale = np.array(meta["scale_factor"], np.float32)
        top, left = meta.get("offset") or meta.get("border", (0, 0, 0, 0))[::2]
        rotated = dets.shape[1] == 6
        boxes = dets[used, :4] - np.array([left, top, *((0, 0) if rotated else (left, top))], np.float32)
        if rescale:
            boxes = boxes / scale
        detections = Found(np.concatenate([boxes, dets[used, 4:]], 1), labels[used])
        if masks:
            shape, network_shape = meta["ori_shape"][:2], meta["img_shape"][:2]
            if not rescale:
                shape, scale = network_shape, np.ones(4, np.float32)
            image = Prepared(batch[0], shape, network_shape, batch.shape[2:], scale, (top, left))
            stored, factors = mask_format.store(masks[0][used], boxes, image)
            detections.dets[:, 4] *= factors
            if mask_format.boxes == "masks" and isinstance(stored, ImageMasks):
                detections.dets[:, :4] = stored.boxes
            detections.masks = np.zeros((len(boxes), *shape), bool)
            for index, canvas in enumerate(detections.masks):
                put(canvas, stored.region(index, *shape))
        result.append(detections)
    return result


class CornerNetOfMMDetection2(CornerNet):
    """CornerNet that scales coordinates by the size of each image's canvas instead of the batch's."""

    def detect(self, maps: tuple[Tensor, ...], size: Tensor, image: Tensor, canvas: Tensor) -> tuple[Tensor, Tensor]:
        return super().detect(maps, canvas if len(canvas) > 1 else size, image, canvas)


def trace(detector: Detector, batch: Array, expected: dict[tuple[str, int], Array]) -> str:
    """List how far each recorded output of a module is from ours."""
    return _listed(detector, batch, {key: (value.shape, value) for key, value in expected.items()}, lambda flat: flat)


def trace_statistics(detector: Detector, batch: Array, case: dict[str, Any], statistics: Array) -> str:
    """List how far the statistics and samples of each recorded output of a module are from ours."""
    names = [(name, index, tuple(shape)) for name, index, shape in case["stats_names"]]
    expected = {(name, index): (shape, row) for (name, index, shape), row in zip(names, statistics, strict=True)}

    def sample(output: Array) -> Array:
        flat = output.astype(np.float64).ravel()
        spaced = flat[np.linspace(0, flat.size - 1, 32).astype(int)]
        return np.concatenate([[flat.mean(), flat.std()], np.resize(flat, 32), spaced])

    return _listed(detector, batch, expected, sample)


def _listed(
    detector: Detector,
    batch: Array,
    expected: dict[tuple[str, int], tuple[tuple[int, ...], Array]],
    sample: Callable[[Array], Array],
) -> str:
    """List how far samples of the modules' outputs are from the expected: by module and number, shape and sample."""
    outputs: dict[str, list[Any]] = {}

    def record(name: str) -> Any:
        return lambda module, inputs, output: outputs.setdefault(name, []).append(output)

    names = {name for name, _ in expected}
    hooks = [module.register_forward_hook(record(name)) for name, module in detector.named_modules() if name in names]
    with torch.inference_mode():
        detector(torch.from_numpy(batch))
    for hook in hooks:
        hook.remove()
    lines = []
    for (name, index), (shape, value) in expected.items():
        flat = list(_tensors(outputs.get(name, [])))
        if index >= len(flat) or tuple(flat[index].shape) != shape:
            lines.append(f"{name}[{index}]: no such output of shape {shape}")
            continue
        far = float(np.abs(sample(flat[index].numpy()) - value).max(initial=0))
        lines.append(f"{name}[{index}]: {far:.2e} of {np.abs(value).max(initial=0):.2e}")
    return "\n    ".join(lines)


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from _tensors(item)


def digits(folder: Path, family: str, options: argparse.Namespace) -> Iterator[tuple[str, Difference]]:
    """Yield the difference of each image of the digits set."""
    directory = folder / family
    config = read_config(directory / "config.py")
    detector = load(directory / "config.py", directory / "checkpoint.pth")
    prepare = Preprocessing.from_config(config)
    with np.load(directory / "ref_results.npz") as file:
        reference = {key: file[key] for key in file.files}
    names = [str(name) for name in reference["file_names"]]
    for index, name in enumerate(names):
        image = prepare(folder / "data/val2017" / name)
        batch, meta = image.input[None], vars(image)
        if f"raw/{index}/input" in reference:
            far = np.abs(batch - reference[f"raw/{index}/input"]).max()
            if far > 0:
                yield f"{name} (input)", Difference(0, 0, [f"the network's input differs by {far}"])
        rows = reference["image_index"] == index
        theirs = Found(reference["dets"][rows], reference["labels"][rows])
        if "mask_counts" in reference:
            theirs.masks = _masks(reference["mask_counts"][rows], meta["ori_shape"])
        (ours,) = detect(run_torch(detector), detector.mask_format, batch, [meta], rescale=True)
        difference = compare(ours, theirs, 1e-2, 1e-4)
        yield name, difference
        prefix = f"raw/{index}/"
        recorded = [key for key in reference if key.startswith(prefix)]
        if not difference.equal and recorded:
            parts = {}
            for key in recorded:
                module = key[len(prefix) :].split(".")[0]
                if module in ("backbone", "neck", "bbox_head") and "#" not in key:
                    parts[module, sum(name == module for name, _ in parts)] = reference[key]
            print("   ", trace(detector, batch, parts))


def _masks(counts: Array, shape: tuple[int, ...]) -> Array:
    """Decode COCO's compressed run lengths."""
    from pycocotools import mask

    height, width = shape[:2]
    masks = [mask.decode({"size": [height, width], "counts": str(count).encode()}) for count in counts]
    return np.array(masks, bool).reshape(-1, height, width)


def oracle(folder: Path, family: str, options: argparse.Namespace) -> Iterator[tuple[str, Difference]]:
    """Yield the difference of each image of a full-size detector's cases, in the recorded batches."""
    version_3 = options.what != "oracle"
    if not version_3:
        PARTS.types["detector"]["CornerHead"] = CornerNetOfMMDetection2
    cases, recipe = import_file(folder / "cases.py"), import_file(folder / "recipe.py")
    meta, arrays = cases.load(folder / f"{family}_ref.npz")
    with np.load(folder / "images.npz") as file:
        images = {key: file[key] for key in file.files}
    detector = build(read_config(folder / f"config_{family}.py"))
    weights = recipe_weights(recipe, folder / f"{family}.npz")
    if options.save:
        torch.save({"state_dict": weights, "meta": {}}, options.save / f"{family}.pth")
    load_weights(detector, weights)
    network = run_file(options.files / f"{family}.onnx") if options.files else run_torch(detector)
    for case in meta["cases"]:
        batch, metas = cases.batch(meta, case, images), cases.img_metas(meta, case)
        if not version_3:
            # Only CornerNet has these two attributes, and cases with mirrored images or with canvases.
            detector.flip_test = meta["cases"][case].get("tta", False)
            detector.pad_or = 127 if "border" in metas[0] else 0
            if detector.flip_test:  # it mirrors the image itself
                batch, metas = batch[:1], metas[:1]
        equal = True
        for mode in ("net", "ori"):
            rescale = mode == "ori" or isinstance(detector, SOLO)  # MMDetection always rescales SOLO's masks
            for index, ours in enumerate(detect(network, detector.mask_format, batch, metas, rescale)):
                result = cases.result(arrays, case, mode, index)
                theirs = Found(result["dets"], result["labels"], result["masks"])
                difference = compare(ours, theirs, 2e-2, score_tolerance(family, theirs), 2e-3 if version_3 else 1e-2)
                equal &= difference.equal
                yield f"{case}.{mode}.{index}", difference
        if options.trace or not equal:
            print("   ", trace_statistics(detector, batch, meta["cases"][case], arrays[f"{case}.stats"]))


def recipe_weights(recipe: ModuleType, path: Path) -> dict[str, Tensor]:
    """Return the weights that a recipe makes."""
    return {key: torch.from_numpy(np.array(value)) for key, value in recipe.state_dict(path).items()}


def import_file(path: Path) -> ModuleType:
    """Import a module by its path."""
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Check the families of the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["digits", "oracle", "oracle3", "oracle_rotated"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--trace", action="store_true", help="compare the modules' outputs of equal cases too")
    parser.add_argument("--files", type=Path, help="the folder of exported files to compare")
    parser.add_argument("--save", type=Path, help="a folder for checkpoints")
    arguments = parser.parse_args()
    check, pattern = (digits, "*/config.py") if arguments.what == "digits" else (oracle, "config_*.py")
    result = sorted(arguments.folder.glob(pattern))
    known = [path.parent.name if check is digits else path.stem.removeprefix("config_") for path in result]
    different = 0
    for family in arguments.families or known:
        images: list[Difference] = []
        for name, difference in check(arguments.folder, family, arguments):
            images.append(difference)
            if not difference.equal:
                print(f"{family} {name}: {difference.ours} detections, {difference.theirs} expected")
                print("    " + "\n    ".join(difference.unmatched[:10]))
        equal = sum(image.equal for image in images)
        different += len(images) - equal
        box, score = max(image.box for image in images), max(image.score for image in images)
        mask, angle = min(image.mask for image in images), max(image.angle for image in images)
        count = sum(image.theirs for image in images)
        print(
            f"{family}: {equal} of {len(images)} equal, {count} detections; "
            f"box {box:.1e}, angle {angle:.1e}, score {score:.1e}, mask IoU {mask:.4f}"
        )
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
