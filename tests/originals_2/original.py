"""MMDetection 2's and MMRotate 0's side: a detector, built from a config, and what it makes of image files."""

from __future__ import annotations

import copy
import sys
import types
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np
import torch

from tests.originals import plain_kernels
from tests.originals.results import BatchResult, ImageResult


def _prepare_imports() -> None:
    """Give MMCV 1.7 what it imports and today's packages lack; none of it detects anything."""
    for alias in (int, float):  # numpy 2 has them no longer
        setattr(np, alias.__name__, alias)
    for name in ("torchvision", "torchvision.models", "torchvision.utils"):  # MMCV only imports it
        module = types.ModuleType(name)
        vars(module).update(__version__="0.20.0", __path__=[], __spec__=ModuleSpec(name, None, is_package=True))
        sys.modules[name] = module


_prepare_imports()
plain_kernels.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mmdet.datasets.pipelines
    import mmdet.models
    import mmrotate.datasets
    import mmrotate.models
    from mmcv import ConfigDict
    from mmcv.cnn.bricks import registry as bricks
    from mmcv.parallel import collate
    from mmdet.core.anchor.builder import PRIOR_GENERATORS
    from mmdet.core.bbox.builder import BBOX_CODERS
    from mmdet.datasets.builder import PIPELINES
    from mmdet.datasets.pipelines import Compose
    from mmdet.models.builder import MODELS
    from mmdet.models.utils.builder import TRANSFORMER

REGISTRIES = (
    MODELS,
    PRIOR_GENERATORS,
    BBOX_CODERS,
    PIPELINES,
    TRANSFORMER,
    bricks.PLUGIN_LAYERS,
    bricks.POSITIONAL_ENCODING,
    bricks.TRANSFORMER_LAYER_SEQUENCE,
    bricks.TRANSFORMER_LAYER,
    bricks.ATTENTION,
    bricks.FEEDFORWARD_NETWORK,
)


def type_named(name: str) -> Any:
    """Return the class that MMDetection or MMRotate builds from a config's ``type``, or None."""
    return next((kind for registry in REGISTRIES if (kind := registry.get(name)) is not None), None)


class Original:
    """A detector of MMDetection 2 or MMRotate 0 with the test pipeline of its config.

    Parameters
    ----------
    config : dict
        It is not changed.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        config = copy.deepcopy(config)
        package = mmrotate if config["rotated"] else mmdet
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model = package.models.build_detector(ConfigDict(config["model"])).eval().requires_grad_(False)
        self.pipeline = Compose(config["data"]["test"]["pipeline"])

    def run(self, paths: Sequence[str], dtype: torch.dtype = torch.float32, mapped: bool = True) -> BatchResult:
        """Detect objects in images, as one batch; boxes stay in pixels of the resized images unless `mapped`."""
        items = [self.pipeline({"img_info": {"filename": path}, "img_prefix": None}) for path in paths]
        batch = collate(items, samples_per_gpu=len(items))
        images, metas = [batch["img"][0].data[0].to(dtype)], [batch["img_metas"][0].data[0]]
        for meta in [] if mapped else metas[0]:
            meta.update(scale_factor=np.ones(4, np.float32), ori_shape=meta["img_shape"])
        self.model.to(dtype)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = self.model(images, metas, return_loss=False, rescale=True)
        return BatchResult(images[0].numpy(), [_image_result(result) for result in results])


def _image_result(result: Any) -> ImageResult:
    """Return what MMDetection 2 returns for an image: boxes by class, perhaps with masks, proposals, or segments."""
    if isinstance(result, dict) and "pan_results" in result:
        empty = np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64)
        return ImageResult(*empty, None, result["pan_results"].astype(np.int64))
    if isinstance(result, dict):  # Mask2Former
        result = result["ins_results"]
    if isinstance(result, np.ndarray):  # proposals
        result = [result]
    by_class, masks = result if isinstance(result, tuple) else (result, None)
    rows = np.concatenate(by_class)
    labels = np.repeat(np.arange(len(by_class)), [len(boxes) for boxes in by_class])
    scores = rows[:, -1]
    if isinstance(masks, tuple):  # Mask Scoring R-CNN gives masks a score of their own
        masks, mask_scores = masks
        scores = np.concatenate([np.reshape(each, -1) for each in mask_scores])
    if masks is not None:
        masks = np.array([mask for each in masks for mask in each], bool)
    return ImageResult(rows[:, :-1], scores, labels, masks)
