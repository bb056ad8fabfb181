"""Images of many sizes: the inputs of MMYOLO's pipelines bit for bit, and where they are in the padding."""

import copy
import warnings

import numpy as np
import pytest

from mmort.predict import Preprocessing
from tests.originals_mmyolo.cases import ALONE, BATCH_SHAPES, CASES, PIPELINE, SMALLER
from tests.originals_mmyolo.original import MODELS, TASK_UTILS, Compose, DefaultScope, Original, pseudo_collate


@pytest.mark.parametrize(
    ("pipeline", "shapes"),
    [(PIPELINE, None), (PIPELINE, BATCH_SHAPES), (ALONE, None), (SMALLER, None)],
    ids=["letterbox", "proportions", "alone", "smaller"],
)
def test_inputs(pipeline, shapes):
    config = CASES["yolov5"].config()
    config["test_dataloader"]["dataset"] |= {"pipeline": copy.deepcopy(pipeline), "batch_shapes_cfg": shapes}
    preprocessing = Preprocessing.from_config(config)
    with warnings.catch_warnings(), DefaultScope.overwrite_default_scope("mmyolo"):
        warnings.simplefilter("ignore")
        steps = Compose([{"type": "mmdet.LoadImageFromNDArray"}, *copy.deepcopy(pipeline[1:])])
        model = MODELS.build(config["model"]["data_preprocessor"])
    policy = None if shapes is None else TASK_UTILS.build(shapes)
    random = np.random.default_rng(len(pipeline) + (shapes is not None))
    for _ in range(150):
        height, width = (int(side) for side in random.integers(10, 320, 2))
        image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        item = {"img": image.copy(), "img_id": 0, "img_path": "", "height": height, "width": width}
        if policy is not None:
            (item,) = policy([item])
        batch = model(pseudo_collate([steps(item)]), False)
        meta = batch["data_samples"][0].metainfo
        prepared = preprocessing(image)
        np.testing.assert_array_equal(prepared.input, batch["inputs"][0].numpy(), err_msg=f"{height} x {width}")
        assert prepared.offset == (int(meta["pad_param"][0]), int(meta["pad_param"][2])), f"{height} x {width}"
        expected = np.float32([*meta["scale_factor"], *meta["scale_factor"]])
        np.testing.assert_array_equal(prepared.scale_factor, expected)


def test_the_original_has_the_shapes():
    assert Original(CASES["yolov5_shapes"].config()).policy is not None
