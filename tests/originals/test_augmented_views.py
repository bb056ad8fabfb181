"""Views of an image, and what is made of their detections, are those of MMDetection's TestTimeAug and DetTTAModel."""

import copy

import numpy as np
import pytest
import torch
from mmdet.registry import MODELS, TRANSFORMS
from mmdet.structures import DetDataSample
from mmengine.config import ConfigDict
from mmengine.dataset import Compose, pseudo_collate
from mmengine.structures import InstanceData

from mmort.evaluate.augmented_views import AugmentedViews
from mmort.predict import Detections
from tests.originals.images import image_files
from tests.originals.original import _without_warnings

RESIZES = [{"type": "Resize", "scale": scale, "keep_ratio": True} for scale in ((130, 97), (75, 60))]
FLIPS = [{"type": "RandomFlip", "prob": 1.0}, {"type": "RandomFlip", "prob": 0.0}]
PACK = {
    "type": "PackDetInputs",
    "meta_keys": ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor", "flip", "flip_direction"),
}
NMS = {"type": "nms", "iou_threshold": 0.6}
CONFIG = {
    "model": {
        "data_preprocessor": {
            "type": "DetDataPreprocessor",
            "mean": [123.675, 116.28, 103.53],
            "std": [58.395, 57.12, 57.375],
            "bgr_to_rgb": True,
            "pad_size_divisor": 32,
        },
    },
    "test_pipeline": [{"type": "LoadImageFromFile"}, RESIZES[0], PACK],
    "tta_model": {"type": "DetTTAModel", "tta_cfg": {"nms": NMS, "max_per_img": 20}},
    "tta_pipeline": [
        {"type": "LoadImageFromFile"},
        {
            "type": "TestTimeAug",
            "transforms": [RESIZES, FLIPS, [{"type": "LoadAnnotations", "with_bbox": True}], [PACK]],
        },
    ],
}


@_without_warnings
def test_views_are_those_of_the_pipeline():
    views = AugmentedViews.from_config(copy.deepcopy(CONFIG)).views
    assert [view.mirrored for view in views] == [True, False, True, False]
    steps = copy.deepcopy(CONFIG["tta_pipeline"])
    steps[1]["transforms"].pop(2)  # there are no annotations
    pipeline = Compose([TRANSFORMS.build(step) for step in steps])
    preprocessor = MODELS.build(copy.deepcopy(CONFIG["model"]["data_preprocessor"]))
    for path in image_files()[:3]:
        packed = pipeline({"img_path": str(path), "img_id": 0})
        for index, view in enumerate(views):
            data = {name: values[index] for name, values in packed.items()}
            expected = preprocessor(pseudo_collate([data]))["inputs"].numpy()
            assert (view(path).input[None] == expected).all()


@_without_warnings
def test_merged_detections_are_those_of_the_model():
    rng, views = np.random.default_rng(0), AugmentedViews.from_config(copy.deepcopy(CONFIG))
    model = MODELS.get("DetTTAModel")(module=_Tested(), tta_cfg=ConfigDict(CONFIG["tta_model"]["tta_cfg"]))
    for counts in ((9, 7, 0, 12), (0, 0, 0, 0), (0, 3, 0, 0)):
        of_views, samples = [], []
        for view, count in zip(views.views, counts, strict=True):
            corners = rng.uniform(0, 60, (count, 2))
            boxes = np.concatenate([corners, corners + rng.uniform(30, 40, (count, 2))], axis=1).astype(np.float32)
            scores, labels = np.sort(rng.random(count).astype(np.float32))[::-1].copy(), rng.integers(0, 2, count)
            of_views.append(Detections(boxes, scores, labels, tuple(map(str, labels)), (90, 110)))
            instances = InstanceData(
                bboxes=torch.tensor(boxes), scores=torch.tensor(scores), labels=torch.tensor(labels)
            )
            meta = {"ori_shape": (90, 110), "flip": view.mirrored, "flip_direction": "horizontal"}
            samples.append(DetDataSample(metainfo=meta, pred_instances=instances))
        expected, merged = model._merge_single_sample(samples).pred_instances, views.merged(of_views)
        assert merged.boxes == pytest.approx(expected.bboxes.numpy(), abs=1e-5)
        assert (merged.scores == expected.scores.numpy()).all()
        assert merged.labels.tolist() == expected.labels.tolist()
        assert len(merged) == 0 or 1 < len(merged) <= 20
        assert merged.names == tuple(map(str, merged.labels))


class _Tested(torch.nn.Module):
    """What the model wraps."""

    def test_step(self, data):
        raise NotImplementedError
