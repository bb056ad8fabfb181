"""MMYOLO's side: its detector, built from a config, and what its test loop makes of image files."""

from __future__ import annotations

import copy
import functools
import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from tests.originals import plain_kernels
from tests.originals.results import BatchResult, ImageResult

plain_kernels.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import cv2
    import mmcv

    importlib.import_module("tests.originals.mmrotate_1")  # MMYOLO imports MMRotate, which refuses MMDetection 3.3

    # MMYOLO 0.6 refuses the MMCV that MMDetection 3.3 needs, by its number alone.
    _version, mmcv.__version__ = mmcv.__version__, "2.0.1"
    import mmyolo  # noqa: F401
    from mmdet.models.task_modules.prior_generators import AnchorGenerator, MlvlPointGenerator
    from mmengine.config import Config, ConfigDict
    from mmengine.dataset import Compose, pseudo_collate
    from mmengine.registry import DefaultScope
    from mmyolo.registry import MODELS, TASK_UTILS
    from mmyolo.utils import register_all_modules

    mmcv.__version__ = _version
    register_all_modules(init_default_scope=True)


def _grid_priors(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, sizes: Any, dtype: torch.dtype = torch.float32, **keywords: Any) -> Any:
        return function(self, sizes, dtype=torch.promote_types(dtype, torch.get_default_dtype()), **keywords)

    return call


for _generator in (AnchorGenerator, MlvlPointGenerator):
    _generator.grid_priors = _grid_priors(_generator.grid_priors)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Create tensors of a type where MMYOLO does not name one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Original:
    """A detector of MMYOLO with the test pipeline of its config, and the shapes of batches of its test data set.

    Parameters
    ----------
    config : dict
        It is not changed.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        config = Config(copy.deepcopy(config))
        data_set = config.test_dataloader.dataset
        with warnings.catch_warnings(), DefaultScope.overwrite_default_scope("mmyolo"):
            warnings.simplefilter("ignore")
            self.model = MODELS.build(ConfigDict(config.model)).eval().requires_grad_(False)
            self.pipeline = Compose(copy.deepcopy(data_set.pipeline))
            shapes = data_set.get("batch_shapes_cfg")
            self.policy = None if shapes is None else TASK_UTILS.build(copy.deepcopy(shapes))

    def prepare(self, paths: Sequence[str]) -> dict[str, Any]:
        """Read and preprocess images as one batch; each has the shape of a batch of its own."""
        items = []
        for index, path in enumerate(paths):
            item = {"img_path": path, "img_id": index}
            if self.policy is not None:
                height, width = cv2.imread(path).shape[:2]
                (item,) = self.policy([{**item, "height": height, "width": width}])
            items.append(self.pipeline(item))
        with torch.inference_mode():
            batch: dict[str, Any] = self.model.data_preprocessor(pseudo_collate(items), False)
        return batch

    def run(self, paths: Sequence[str], dtype: torch.dtype = torch.float32, mapped: bool = True) -> BatchResult:
        """Detect objects in images, as one batch."""
        assert mapped
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batch = self.prepare(paths)
            self.model.to(dtype)
            self.model.data_preprocessor.to(torch.float32)  # both sides normalize images in float32
            with torch.inference_mode(), _default_dtype(dtype):
                inputs = batch["inputs"].to(dtype)
                samples = self.model.predict(inputs, batch["data_samples"], rescale=True)
        return BatchResult(inputs.numpy(), [_image_result(sample.pred_instances) for sample in samples])


def _image_result(instances: Any) -> ImageResult:
    """Return the boxes, scores and labels of MMYOLO, and its masks if it has any."""
    boxes = getattr(instances.bboxes, "tensor", instances.bboxes)  # rotated ones have a class
    masks = instances.masks.numpy() if "masks" in instances else None
    return ImageResult(boxes.numpy(), instances.scores.numpy(), instances.labels.numpy(), masks)
