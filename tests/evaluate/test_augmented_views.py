"""``mmort test --tta`` of MMDetection 3's configs: the views, and what is refused; tests/originals compares them."""

import copy

import numpy as np
import pytest

from mmort import Detections, Predictor, demo
from mmort.evaluate import CocoDataset
from mmort.evaluate import TestOptions as Options
from mmort.evaluate import test as run_test
from mmort.evaluate.augmented_views import AugmentedViews
from mmort.images import write_image
from mmort.predict import Classes, SegmentationMap
from tests.predict import tiny_detector

LOAD, RESIZE, PACK = ({"type": kind} for kind in ("LoadImageFromFile", "Resize", "PackDetInputs"))
RESIZE |= {"scale": (64, 48), "keep_ratio": True}
CONFIG = {"model": {"data_preprocessor": {"type": "DetDataPreprocessor"}}, "test_pipeline": [LOAD, RESIZE, PACK]}
FLIP = {"type": "RandomFlip", "prob": 1}


def with_views(*groups, **model):
    pipeline = [LOAD, {"type": "TestTimeAug", "transforms": [*groups, [PACK]]}]
    return CONFIG | {"tta_pipeline": pipeline} | model


def test_the_default_is_the_mirror_image_and_the_image():
    views = AugmentedViews.from_config(copy.deepcopy(CONFIG))
    assert [view.mirrored for view in views.views] == [True, False]
    assert {view.preprocessing.size for view in views.views} == {(64, 48)}
    assert (views.nms, views.max_per_img) == ({"type": "nms", "iou_threshold": 0.5}, 100)


def test_views_are_all_combinations(tmp_path):
    sizes = [RESIZE | {"scale": (side, side)} for side in (32, 64)]
    views = AugmentedViews.from_config(with_views(sizes, [FLIP, FLIP | {"prob": 0}])).views
    assert [(view.preprocessing.size[0], view.mirrored) for view in views] == [
        (32, True),
        (32, False),
        (64, True),
        (64, False),
    ]
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    write_image(tmp_path / "a.png", image)
    mirrored, plain = (view(tmp_path / "a.png").input for view in views[2:])
    assert (mirrored[:, :, :64] == plain[:, :, 63::-1]).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model": {}, "test_pipeline": [LOAD, {"type": "Collect", "keys": []}]},
            "tta is for configs of MMDetection 3",
        ),
        (with_views([FLIP], tta_model={"type": "Mine", "tta_cfg": {}}), "must be a DetTTAModel with a tta_cfg"),
        (with_views([FLIP], tta_model={"type": "DetTTAModel", "tta_cfg": {"nms": {}}}), "must have a dict nms and an"),
        (with_views([FLIP | {"prob": 0.5}]), "must have prob 0 or 1 and be horizontal"),
        (with_views([FLIP | {"direction": "vertical"}]), "must have prob 0 or 1 and be horizontal"),
        (with_views([{"type": "Albu"}]), "step Albu of the test pipeline is not supported"),
        (CONFIG | {"tta_pipeline": [LOAD, RESIZE]}, "the last step of tta_pipeline must be TestTimeAug"),
        (CONFIG | {"tta_pipeline": 5}, "tta_pipeline must be a list of steps"),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        AugmentedViews.from_config(copy.deepcopy(config))


def test_masks_are_not_merged():
    views = AugmentedViews.from_config(copy.deepcopy(CONFIG))
    with pytest.raises(ValueError, match="tta merges upright boxes only, as MMDetection does"):
        list(views.predict(Predictor(demo.MODEL), [demo.IMAGES[0]]))


def test_other_results_are_not_merged():
    views = AugmentedViews.from_config(copy.deepcopy(CONFIG))
    box = [[1, 2, 5, 9]], [0.9], [0], ("a",), (10, 12)
    poses = Detections(*box, keypoints=np.zeros((1, 3, 3)))
    with pytest.raises(ValueError, match=r"tta merges upright boxes only, .* but not masks, keypoints or rotated"):
        views.merged([poses, poses])
    map = SegmentationMap(np.zeros((4, 5), np.uint8), ("a",))
    for result in (Classes.of_scores(np.array([0.2, 0.8]), ("a", "b"), (4, 5)), map):
        with pytest.raises(ValueError, match=f"tta merges detections only, got {type(result).__name__}"):
            views.merged([result, result])


@pytest.mark.filterwarnings("ignore:the config's test pipeline")
def test_detections_of_views_are_merged(tmp_path):
    """A detector that finds the same box in any image finds it mirrored, too."""
    model = tiny_detector.write(tmp_path / "tiny.onnx")
    dataset = CocoDataset(demo.ANNOTATIONS, demo.IMAGES[0].parent)
    predictor = Predictor(model, score_threshold=0)
    views = AugmentedViews.from_config(with_views([RESIZE], [FLIP, FLIP | {"prob": 0}]))
    for path, merged in zip(demo.IMAGES, views.predict(predictor, demo.IMAGES, 3), strict=True):
        (plain,) = predictor.run([views.views[1](path)])
        (mirrored,) = predictor.run([views.views[0](path)])
        width = plain.image_size[1]
        found = {tuple(box) for box in merged.boxes.round(3).tolist()}
        of_mirrored = {(width - x2, y1, width - x1, y2) for x1, y1, x2, y2 in mirrored.boxes.tolist()}
        best = max(*plain.scores, *mirrored.scores)
        assert merged.scores[0] == best
        assert found <= {tuple(np.round(box, 3).tolist()) for box in (*plain.boxes, *np.float32([*of_mirrored]))}
    with pytest.raises(ValueError, match="tta needs a config"):
        run_test(model, dataset, options=Options(tta=True))
