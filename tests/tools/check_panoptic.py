"""Compare the panoptic maps of small detectors with MMDetection's own, from the image to the map.  Run by hand.

    python -m tests.tools.check_panoptic FOLDER [NAME ...]     # compare; with --record, write what the tests expect
    python -m tests.tools.check_panoptic export [NAME ...]     # export each for all sizes, with its map

FOLDER has MMDetection 3, see check_parts, or 2, see mmdetection_2.  Both sides are built from the configs of
tests/detect/panoptic_cases.py with the same weights, and segment a batch of two images of different sizes, in the sizes
of the original images.  Prints a line for each image.  Exit code 1 if a segment differs, or an export fails.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from tests.detect import panoptic_cases
from tests.tools import mmdetection_2
from tests.tools.check_masks import exported
from tests.tools.check_parts import mmdetection

RECORD = Path(__file__).parents[1] / "data" / "detect" / "panoptic.json"

Maps = list[NDArray[np.int32]]
Metas = list[dict[str, Any]]
Segment = Callable[[Any, torch.Tensor, Metas], Maps]


def theirs(model: Any, batch: torch.Tensor, metas: Metas) -> Maps:
    """Return the maps that MMDetection 3 makes."""
    from mmdet.structures import DetDataSample

    size = tuple(batch.shape[2:])
    samples = [DetDataSample(metainfo={**meta, "batch_input_shape": size, "pad_shape": size}) for meta in metas]
    with torch.inference_mode():
        samples = model.predict(batch, samples, rescale=True)
    return [sample.pred_panoptic_seg.sem_seg[0].numpy() for sample in samples]


def theirs_of_version_2(model: Any, batch: torch.Tensor, metas: Metas) -> Maps:
    """Return the maps that MMDetection 2 makes, of one image at a time: it takes the first one's size for all."""
    size, maps = tuple(batch.shape[2:]), []
    for image, meta in zip(batch.split(1), metas, strict=True):
        known = {name: (*meta[name], 3) for name in ("img_shape", "ori_shape")}
        known |= {"pad_shape": (*size, 3), "batch_input_shape": size}
        known["scale_factor"] = np.tile(np.float32(meta["scale_factor"]), 2)
        with torch.inference_mode():
            maps.append(model.simple_test(image, [known], rescale=True)[0]["pan_results"])
    return maps


def model_of_version_2(name: str) -> dict[str, Any]:
    """Return a model's config in the words of MMDetection 2."""
    model = copy.deepcopy(panoptic_cases.MODELS[name])
    head = model.get("panoptic_head")
    if head is None:  # its instances are selected by the panoptic entries
        test_cfg = model["test_cfg"]
        test_cfg["panoptic"] |= test_cfg["rcnn"]
        return {**model, "pretrained": None}
    for owner in (head, head["pixel_decoder"]):
        owner["positional_encoding"]["type"] = "SinePositionalEncoding"
    encoder, decoder = head["pixel_decoder"]["encoder"], head["transformer_decoder"]
    first, second = ("self_attn", "norm"), ("cross_attn", "norm")
    if "strides" in head:  # Mask2Former
        head |= {"num_transformer_feat_level": 3, "loss_mask": head["loss_cls"], "loss_dice": {"type": "DiceLoss"}}
    orders = first, second + first if "strides" in head else first + second
    for transformer, kind, attentions in zip((encoder, decoder), ("Encoder", "Decoder"), orders, strict=True):
        layer = transformer.pop("layer_cfg")
        attention = layer["self_attn_cfg"] | {"batch_first": False}
        attention["type"] = "MultiScaleDeformableAttention" if "num_levels" in attention else "MultiheadAttention"
        transformer["type"] = f"DetrTransformer{kind}"
        transformer["transformerlayers"] = {
            "type": "BaseTransformerLayer" if kind == "Encoder" else "DetrTransformerDecoderLayer",
            "attn_cfgs": attention,
            "ffn_cfgs": {"type": "FFN", **layer["ffn_cfg"]},
            "operation_order": (*attentions, "ffn", "norm"),
        }
        if kind == "Decoder":
            transformer["transformerlayers"]["feedforward_channels"] = layer["ffn_cfg"]["feedforward_channels"]
    return model


def ours(detector: Any, batch: torch.Tensor, metas: Metas) -> Maps:
    """Return the maps that mmort makes."""
    maps = [detections.panoptic_map for detections in panoptic_cases.predicted(detector, batch, metas)]
    return [map for map in maps if map is not None]


def networks(folder: str) -> tuple[Callable[[str], Any], Segment]:
    """Import MMDetection from a folder; return what builds a named model, and what makes maps with it."""
    if "__version__ = '2." in Path(folder, "mmdet", "version.py").read_text():
        mmdetection_2.import_from(folder)
        return lambda name: mmdetection_2.build(model_of_version_2(name)), theirs_of_version_2
    registry = mmdetection(folder)
    from mmengine.config import ConfigDict

    return lambda name: registry.build(ConfigDict(copy.deepcopy(panoptic_cases.MODELS[name]))), theirs


def compare(name: str, model: Any, segment: Segment, record: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each image, and whether the maps are equal."""
    model.eval()
    panoptic_cases.fill(name, model)
    detector = build(panoptic_cases.config(name))
    load_weights(detector, model.state_dict())
    batch, metas = panoptic_cases.batch(name)
    expected = segment(model, batch, metas)
    record[name] = [panoptic_cases.summary(map) for map in expected]
    for index, (map, wanted) in enumerate(zip(ours(detector, batch, metas), expected, strict=True)):
        different = int((map != wanted).sum())
        yield (
            f"{name}, image {index}: {len(np.unique(wanted))} segments, {different} of {wanted.size} pixels differ",
            different <= wanted.size * 0.002 and set(np.unique(map)) == set(np.unique(wanted)),
        )


def main(folder: str, *arguments: str) -> int:
    """Check the detectors of the command line, by default all."""
    names = [argument for argument in arguments if argument != "--record"] or list(panoptic_cases.MODELS)
    record: dict[str, Any] = {}
    result, problems = None if folder == "export" else networks(folder), 0
    for name in names:
        if result is None:
            problem = exported(panoptic_cases.config(name), partial(panoptic_cases.fill, name), paste_masks=True)
            print(f"{name}: {problem or 'exported'}", flush=True)
            problems += bool(problem)
            continue
        construct, segment = result
        for line, equal in compare(name, construct(name), segment, record):
            print(line, flush=True)
            problems += not equal
    if "--record" in arguments:
        RECORD.write_text(json.dumps(record).replace(']]], "', ']]],\n"') + "\n")
    return problems > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
