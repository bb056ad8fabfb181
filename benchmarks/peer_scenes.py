"""Compare mmort with torch, torchvision and ONNX Runtime over scenes that a seed draws.

    bench-venv/bin/python benchmarks/peer_scenes.py [--seed S] [--seconds N] [--operators NAME ...] [--write]

Scenes are those of `map_scenes.py`, and of `suppression_scenes.py` what torchvision can do.  mmort and a peer take
turns on the same input in one process and on one thread, after both gave the same answer: a value in 1000 may differ.
The cost of each is the smallest CPU time of its turns; the ratio is the peer's divided by mmort's, above 1 where mmort
is faster.  A scene whose ratio is below 1 gets four times as many turns before it counts.  Prints quantiles and the
scenes below 1; --write also writes the table of README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import map_scenes
import numpy as np
import peers
import suppression_scenes
from map_scenes import Scene

import mmort

Pair = tuple[str, Callable[[], Any], Callable[[], Any]]
"""The name of a peer, mmort's call and the peer's."""

SUPPRESSION = ("nms", "batched_nms")
SCALES = {"nms": 0.01, "batched_nms": 0.03}
"""Of suppression, which compares all pairs in torchvision."""
OPERATORS = SUPPRESSION + map_scenes.OPERATORS
README = Path(__file__).parents[1] / "README.md"
HEAD = "| function | compared with | smallest | 5 % | median | largest |\n|-|-|-|-|-|-|\n"
TURNS, MORE_TURNS = 7, 28
SAMPLE = 1e-3
"""Seconds that the calls of a turn take at least together."""


def module_of(operator: str) -> Any:
    return suppression_scenes if operator in SUPPRESSION else map_scenes


def attend(sizes: tuple[tuple[int, int], ...], value: Any, _: Any, __: Any, locations: Any, weights: Any) -> Any:
    return peers.attention_in_torch(value, locations, weights, sizes)


def reassemble(features: Any, masks: Any, kernel: int, group: int, scale: int) -> Any:
    """CARAFE by unfolding, as its authors describe it."""
    functional = peers.torch.nn.functional
    batch, channels, height, width = features.shape
    patches = functional.unfold(features, kernel, padding=kernel // 2).view(batch, -1, height, width)
    patches = functional.interpolate(patches, scale_factor=scale, mode="nearest")
    patches = patches.view(batch, group, channels // group, kernel**2, height * scale, width * scale)
    masks = masks.view(batch, group, 1, kernel**2, height * scale, width * scale)
    return (patches * masks).sum(3).view(batch, channels, height * scale, width * scale)


def pairs_of(scene: Scene) -> Iterator[Pair]:
    """Yield the peers that can do a scene, each with mmort's call of the same kind: from Python, or as a node."""
    operator = scene["operator"]
    name, arguments, options = module_of(operator).prepare(scene)
    ours = partial(getattr(mmort, name), *arguments, **options)
    tensors = [peers.torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in arguments]
    vision = peers.torchvision.ops
    if operator in SUPPRESSION:
        if scene["offset"] or scene["max_num"] > 0 or scene["order"] == "ties" or scene["sizes"] == "equal":
            return
        if operator == "nms":
            yield "torchvision", ours, partial(vision.nms, *tensors)
        else:
            yield "torchvision", ours, partial(vision.batched_nms, *tensors[:3], scene["threshold"])
    elif operator == "roi_align":
        scale, ratio, aligned = options["spatial_scale"], options["sampling_ratio"], options["aligned"]
        yield "torchvision", ours, partial(vision.roi_align, *tensors, scale, ratio, aligned)
        features, regions, pooled = arguments
        shared = {"output_height": pooled, "output_width": pooled, "sampling_ratio": ratio, "spatial_scale": scale}
        shared["mode"] = "avg"
        node = peers.session("mmcv", "MMCVRoiAlign", {"input": features, "rois": regions}, aligned=aligned, **shared)
        feeds = {"X": features, "rois": regions[:, 1:].copy(), "batch_indices": regions[:, 0].astype(np.int64)}
        mode = "half_pixel" if aligned else "output_half_pixel"
        yield "ONNX Runtime", node, peers.session("", "RoiAlign", feeds, coordinate_transformation_mode=mode, **shared)
    elif operator == "grid_sample":
        modes = scene["mode"], scene["padding"], scene["align"]
        yield "torch", ours, partial(peers.torch.nn.functional.grid_sample, *tensors, *modes)
        if scene["dtype"] != "float32":  # as the node's are
            return
        feeds = {"input": arguments[0], "grid": arguments[1]}
        numbers = {
            "interpolation_mode": ("bilinear", "nearest", "bicubic").index(modes[0]),
            "padding_mode": ("zeros", "border", "reflection").index(modes[1]),
        }
        node = peers.session("mmcv", "grid_sampler", feeds, align_corners=int(modes[2]), **numbers)
        keywords = {"mode": modes[0], "padding_mode": modes[1], "align_corners": int(modes[2])}
        yield "ONNX Runtime", node, peers.session("", "GridSample", feeds, **keywords)
    elif operator == "deform_conv2d":
        same = {key: options[key] for key in ("stride", "padding", "dilation")}
        yield "torchvision", ours, partial(vision.deform_conv2d, *tensors, **same)
    elif operator == "multi_scale_deformable_attention":
        sizes = tuple((height, width) for height, width in scene["pyramid"])
        yield "torch's grid_sample", ours, partial(attend, sizes, *tensors)
    elif operator == "carafe":
        yield "torch's unfold", ours, partial(reassemble, *tensors)
    elif operator in {"cummax", "cummin"}:
        yield "torch", ours, partial(getattr(peers.torch, operator), *tensors)
    elif operator == "corner_pool":
        axis, backwards = (2 if scene["mode"] in {"top", "bottom"} else 3), scene["mode"] in {"top", "left"}
        yield "torch", ours, partial(peers.corner_pool_in_torch, tensors[0], axis, backwards)
    elif operator == "box_iou" and scene["mode"] == "iou" and not (scene["aligned"] or scene["offset"]):
        yield "torchvision", ours, partial(vision.box_iou, *tensors)


def agree(operator: str, ours: Any, theirs: Any) -> bool:
    """Return whether a peer's values are mmort's, but for one in a thousand."""
    if operator in SUPPRESSION:  # boxes kept
        kept, kept_by_peer = set(ours[1].tolist()), set(theirs.tolist())
        return len(kept ^ kept_by_peer) <= len(kept) / 1000
    several = isinstance(theirs, (tuple, list))  # an index may be that of another of equal values
    first = np.asarray(ours[0] if isinstance(ours, (tuple, list)) else ours)
    second = np.asarray(theirs[0] if several else theirs)
    return bool(np.isclose(first, second.reshape(first.shape), 1e-3, 1e-3, equal_nan=True).mean() >= 0.999)


def sample(call: Callable[[], Any], calls: int) -> float:
    """Return the CPU seconds of a call."""
    begin = time.thread_time()
    for _ in range(calls):
        call()
    return (time.thread_time() - begin) / calls


def measure(calls: tuple[Callable[[], Any], Callable[[], Any]]) -> tuple[float, float]:
    """Return the seconds of mmort and of the peer."""
    numbers = [max(1, int(SAMPLE / max(sample(call, 1), 1e-7))) for call in calls]
    costs = [[sample(call, number)] for call, number in zip(calls, numbers, strict=True)]
    for turns in (TURNS, MORE_TURNS):
        for _ in range(turns):
            for call, number, several in zip(calls, numbers, costs, strict=True):
                several.append(sample(call, number))
        if min(costs[1]) >= min(costs[0]):
            break
    return min(costs[0]), min(costs[1])


def split_table(page: str) -> tuple[str, str, str]:
    """Return the text before the table of the section Speed, the table, and the text after it."""
    begin = page.index("| function |", page.index("\n## Speed\n"))
    end = page.index("\n\n", begin)
    return page[:begin], page[begin:end], page[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--scenes", type=int, default=100, help="of each operator")
    parser.add_argument("--seconds", type=float, default=300, help="for all scenes together")
    parser.add_argument("--scale", type=float, default=0.3, help="of the largest scenes")
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=OPERATORS)
    parser.add_argument("--write", action="store_true", help="the table of README.md")
    options = parser.parse_args()
    mmort.set_num_threads(1)
    peers.torch.set_num_threads(1)
    print(f"seed {options.seed}, CPU time, load {os.getloadavg()[0]:.1f}\n")
    print(HEAD, end="")
    rows: list[str] = []
    below: list[str] = []
    for operator in options.operators:
        rng = np.random.default_rng([options.seed, zlib.crc32(operator.encode())])
        ratios: dict[str, list[float]] = {}
        end = time.monotonic() + options.seconds / len(options.operators)
        for _ in range(options.scenes):
            if time.monotonic() > end:
                break
            scene = module_of(operator).draw(rng, operator, SCALES.get(operator, options.scale))
            for peer, *calls in pairs_of(scene):
                with peers.torch.inference_mode():
                    if not agree(operator, *(call() for call in calls)):
                        below.append(f"another answer of {peer}, {operator}: {module_of(operator).describe(scene)}")
                        continue
                    ours, theirs = measure((calls[0], calls[1]))
                ratios.setdefault(peer, []).append(theirs / ours)
                if theirs < ours:
                    times = f"{theirs / ours:.2f} {1e3 * ours:.3g} and {1e3 * theirs:.3g} ms"
                    below.append(f"{times}, {peer}, {operator}: {module_of(operator).describe(scene)}")
        for peer, several in ratios.items():
            cuts = statistics.quantiles(several, n=20, method="inclusive") if len(several) > 1 else several * 19
            numbers = f"{min(several):.2f} | {cuts[0]:.2f} | {cuts[9]:.1f} | {max(several):.1f}"
            rows.append(f"| `{operator}` | {peer}, {len(several)} scenes | {numbers} |")
            print(rows[-1], flush=True)
    if options.write:
        before, _, after = split_table(README.read_text(encoding="utf-8"))
        README.write_text(before + "\n".join((HEAD + rows[0], *rows[1:])) + after, encoding="utf-8")
    print("\n" + "\n".join(below))


if __name__ == "__main__":
    main()
