"""MMDetection's side: its detector, built from a config, and what its test loop makes of image files."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers, which MMDetection imports

from transformers import modeling_utils, pytorch_utils

from tests.originals import plain_kernels
from tests.originals.results import BatchResult, ImageResult

plain_kernels.install()
# Where MMDetection 3.3 imports it from; transformers has moved it since.
modeling_utils.apply_chunking_to_forward = pytorch_utils.apply_chunking_to_forward  # type: ignore[attr-defined]

importlib.import_module("tests.originals.mmpretrain_1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what MMDetection imports warns of its own future
    from mmdet.models.language_models import bert
    from mmdet.models.roi_heads.mask_heads import fcn_mask_head
    from mmdet.models.task_modules.prior_generators import AnchorGenerator, MlvlPointGenerator
    from mmdet.models.utils.vlfuse_helper import BertSelfAttention
    from mmdet.registry import MODELS, TASK_UTILS, TRANSFORMS
    from mmdet.utils import register_all_modules
    from mmengine.config import Config, ConfigDict
    from mmengine.dataset import Compose, pseudo_collate
    from mmengine.model import revert_sync_batchnorm
    from mmengine.registry import DefaultScope

    register_all_modules(init_default_scope=True)
    from tests.originals import mmrotate_1
for _name in ("mmengine", "transformers"):
    logging.getLogger(_name).setLevel(logging.ERROR)


def _grid_sample(input: torch.Tensor, grid: torch.Tensor, **keywords: Any) -> torch.Tensor:
    dtype = torch.promote_types(input.dtype, grid.dtype)
    return functional.grid_sample(input.to(dtype), grid.to(dtype), **keywords)


# MMDetection pastes masks of float32 into boxes of float64, and MMCV samples maps of float64 at points of float32.
fcn_mask_head.F = SimpleNamespace(**{**vars(functional), "grid_sample": _grid_sample})
importlib.import_module("mmcv.ops.point_sample").F = fcn_mask_head.F  # type: ignore[attr-defined]


def _grid_priors(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, sizes: Any, dtype: torch.dtype = torch.float32, **keywords: Any) -> Any:
        return function(self, sizes, dtype=torch.promote_types(dtype, torch.get_default_dtype()), **keywords)

    return call


# The heads ask for anchors in float32 whatever the network computes in; rotated ones are not integers then.
for generator in (AnchorGenerator, MlvlPointGenerator):
    generator.grid_priors = _grid_priors(generator.grid_priors)


def _of_named(function: Callable[..., Any]) -> Callable[..., Any]:
    names = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **{name: value for name, value in keywords.items() if name in names})

    return call


# Today's transformers pass it what earlier ones did not have, and what only matters to a decoder.
BertSelfAttention.forward = _of_named(BertSelfAttention.forward)


def _untrained(name: str, *, config: Any, **keywords: Any) -> Any:
    return _LanguageModel(config, **keywords)


# The folders of the tests have no weights: those of a case come later.
_LanguageModel = bert.HFBertModel
bert.HFBertModel = SimpleNamespace(from_pretrained=_untrained)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Create tensors of a type where MMDetection does not name one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


REGISTRIES = MODELS, TASK_UTILS, TRANSFORMS, mmrotate_1.MODELS, mmrotate_1.TASK_UTILS, mmrotate_1.TRANSFORMS


def type_named(name: str) -> Any:
    """Return the class that MMDetection or MMRotate builds from a config's ``type``, or None."""
    return next((instances for registry in REGISTRIES if (instances := registry.get(name)) is not None), None)


def _without_warnings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ignore the warnings of MMDetection, and of it alone."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*arguments, **keywords)

    return call


class Original:
    """A detector of MMDetection with the test pipeline of its config.

    Parameters
    ----------
    config : dict or path
        It is not changed; MMDetection and MMEngine alone read it, as ``tools/test.py`` does.
    """

    @_without_warnings
    def __init__(self, config: dict[str, Any] | str) -> None:
        self.config = Config.fromfile(config) if isinstance(config, str) else Config(copy.deepcopy(config))
        model = ConfigDict(copy.deepcopy(self.config.model))
        if "data_preprocessor" in self.config:  # as MMEngine's runner does
            model.setdefault("data_preprocessor", copy.deepcopy(self.config.data_preprocessor))
        with DefaultScope.overwrite_default_scope(self.config.get("default_scope")):
            self.model = revert_sync_batchnorm(MODELS.build(model)).eval().requires_grad_(False)
            self.pipeline = Compose(copy.deepcopy(self.config.test_dataloader.dataset.pipeline))
        for module in self.model.modules():
            if type(module).__name__.endswith("SSDHead") and not hasattr(module, "loss_cls"):
                module.loss_cls = None  # MMDetection 3.3 asks for it, and has none

    def load(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Load all weights."""
        self.model.load_state_dict(state_dict)

    def prepare(self, paths: Sequence[str]) -> dict[str, Any]:
        """Read and preprocess images as one batch."""
        texts = _texts(self.config.test_dataloader.dataset)
        items = [self.pipeline({"img_path": path, "img_id": index, **texts}) for index, path in enumerate(paths)]
        with torch.inference_mode():
            return self.model.data_preprocessor(pseudo_collate(items), False)

    @_without_warnings
    def run(self, paths: Sequence[str], dtype: torch.dtype = torch.float32, mapped: bool = True) -> BatchResult:
        """Detect objects in images, as one batch; boxes stay in pixels of the resized images unless `mapped`."""
        batch = self.prepare(paths)
        preprocessor = self.model.data_preprocessor
        self.model.to(dtype)
        self.model.train()
        self.model.eval()  # now MMRotate's equivariant convolutions expand their weights in this type
        preprocessor.to(torch.float32)  # both sides normalize images in float32
        with torch.inference_mode(), _default_dtype(dtype):
            inputs = batch["inputs"].to(dtype)
            samples = self.model.predict(inputs, batch["data_samples"], rescale=mapped)
        self.model.to(torch.float32)  # equivariant convolutions share their bases with detectors that are built later
        return BatchResult(inputs.numpy(), [_image_result(sample) for sample in samples])


def _texts(data_set: Any) -> dict[str, Any]:
    """Return what the data sets of MMDetection tell of each image's text, if they do."""
    if not data_set.get("return_classes"):
        return {}
    texts = {"text": tuple(data_set.metainfo.classes), "custom_entities": True}
    return texts | {"caption_prompt": data_set.caption_prompt} if "caption_prompt" in data_set else texts


def _image_result(sample: Any) -> ImageResult:
    """Return what a data sample of MMDetection holds."""
    panoptic = None
    if "pred_panoptic_seg" in sample:
        panoptic = np.asarray(sample.pred_panoptic_seg.sem_seg)[0].astype(np.int64)
    instances = sample.get("pred_instances")
    empty = np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64)
    if panoptic is not None or instances is None:
        return ImageResult(*empty, None, panoptic)
    if "bboxes" not in instances:  # SparseInst's are left out where nothing is detected
        return ImageResult(*empty, np.zeros((0, *sample.ori_shape[:2]), bool), None)
    if (
        "masks" in instances
    ):  # MaskFormer's have a score of 0 if they are empty, and a box of zeros: nothing is detected
        instances = instances[(instances.scores != 0) | torch.as_tensor(np.asarray(instances.masks)).flatten(1).any(1)]
    masks = instances.get("masks")
    labels = instances.labels if "labels" in instances else torch.zeros(len(instances.scores), dtype=torch.long)
    return ImageResult(
        getattr(instances.bboxes, "tensor", instances.bboxes).numpy(),  # MMRotate may return an object for the boxes
        instances.scores.numpy(),
        labels.numpy(),
        None if masks is None else np.asarray(masks).astype(bool),
    )
