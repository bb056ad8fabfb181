"""What a config's top level means is known in one module, whatever the version and the wrappers."""

import ast
import copy
import pathlib

import pytest

import mmort
from mmort.configs import class_names
from mmort.configs.layout import READ_ENTRIES, DetectorConfig

ROOT = pathlib.Path(mmort.__file__).parent
PREPROCESSOR = {"type": "DetDataPreprocessor"}


@pytest.mark.parametrize(
    ("config", "version"),
    [
        ({"model": {}}, 3),
        ({"model": {"data_preprocessor": PREPROCESSOR}, "data": {}}, 3),
        ({"model": {}, "data_preprocessor": PREPROCESSOR}, 3),
        ({"model": {}, "test_dataloader": {}}, 3),
        ({"model": {}, "default_scope": "mmdet"}, 3),
        ({"model": {}, "test_cfg": {"type": "TestLoop"}}, 3),
        ({"model": {}, "test_pipeline": [{"type": "PackDetInputs"}]}, 3),
        ({"model": {}, "data": {"test": {}}}, 2),
        ({"model": {}, "img_norm_cfg": {}}, 2),
        ({"model": {}, "test_cfg": {"rcnn": {}}}, 2),
        ({"model": {}, "test_pipeline": [{"type": "MultiScaleFlipAug", "transforms": []}]}, 2),
    ],
)
def test_version(config, version):
    before = copy.deepcopy(config)
    assert DetectorConfig(config).version == version
    assert config == before


TOP_LEVEL = {*READ_ENTRIES, "custom_hooks"} - {"data", "data_root", "test_cfg"}  # which data sets and models have too


def indexed_names(tree):
    """Yield the constants that a file's expressions index anything with, or pass to ``get``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            yield from node.args[:1]


def test_only_configs_index_the_top_level():
    uses = [
        f"{path.relative_to(ROOT)}:{name.lineno}: {name.value}"
        for path in sorted(ROOT.rglob("*.py"))
        if "configs" not in path.relative_to(ROOT).parts[:1] and "demo" not in path.relative_to(ROOT).parts[:1]
        for name in indexed_names(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(name, ast.Constant) and name.value in TOP_LEVEL
    ]
    assert uses == []


def test_version_3_has_its_selection_inside_the_model():
    selection = {"rcnn": {"score_thr": 0.1}}
    beside = {"model": {"type": "FasterRCNN"}, "test_cfg": selection}
    assert DetectorConfig(beside).test_cfg == selection
    assert DetectorConfig({**beside, "test_dataloader": {}}).test_cfg == {}
    assert DetectorConfig({**beside, "model": {"test_cfg": {"rpn": {}}}}).test_cfg == {"rpn": {}}


def test_the_model_of_student_and_teacher_is_the_detector():
    model = {"type": "mmdet.SoftTeacher", "detector": {"type": "FasterRCNN", "data_preprocessor": PREPROCESSOR}}
    config = DetectorConfig({"model": model})
    assert config.model == model["detector"]
    assert config.around == config.outer_model == model
    assert DetectorConfig({"model": model["detector"]}).around is None


def test_the_model_of_a_tracker_is_its_detector():
    model = {"type": "ByteTrack", "detector": {"type": "YOLOX"}, "data_preprocessor": PREPROCESSOR}
    config = DetectorConfig({"model": model})
    assert config.model == {"type": "YOLOX", "data_preprocessor": PREPROCESSOR}


def test_data_preprocessor_beside_the_model_is_the_model_s_if_it_has_none():
    beside, inside = {**PREPROCESSOR, "pad_size_divisor": 2}, {**PREPROCESSOR, "pad_size_divisor": 3}
    assert DetectorConfig({"model": {}, "data_preprocessor": beside}).data_preprocessor.pad_size_divisor == 2
    config = {"model": {"data_preprocessor": inside}, "data_preprocessor": beside}
    assert DetectorConfig(config).data_preprocessor.pad_size_divisor == 3


def test_configs_without_a_model():
    config = DetectorConfig({"test_pipeline": [{"type": "Resize", "scale": (3, 4)}]})
    assert not config.has_model
    assert [kind for kind, _ in config.test_pipeline.steps] == ["Resize"]
    with pytest.raises(
        ValueError, match=r"must have a dict 'model', got a deploy config of MMDeploy, which is not needed$"
    ):
        DetectorConfig({"codebase_config": {"type": "mmdet"}}).model  # noqa: B018
    with pytest.raises(ValueError, match=r"must have a dict 'model'$"):
        config.model  # noqa: B018


@pytest.mark.parametrize(
    ("model", "data_set", "classes"),
    [
        ({"num_classes": 2}, {"type": "CocoDataset", "metainfo": {"classes": ("cat", "dog")}}, ("cat", "dog")),
        ({"a": [{"num_classes": 20}, {"num_classes": 20}]}, {"type": "VOCDataset"}, class_names.VOC),
        ({"num_classes": 3}, {"type": "CocoDataset", "metainfo": {"classes": ("cat", "dog")}}, ()),
        ({"a": {"num_classes": 2}, "b": {"num_classes": 3}}, {"type": "X", "classes": ("cat", "dog")}, ()),
        ({"num_classes": 2}, {"type": "OpenImagesDataset"}, ()),
        ({"num_classes": 2}, {"type": "CocoDataset", "classes": "nowhere.txt"}, ()),
        ({"num_classes": 2}, None, ()),
    ],
)
def test_class_names_that_fit_the_model(model, data_set, classes):
    config = {"model": model} | ({} if data_set is None else {"test_dataloader": {"dataset": data_set}})
    assert DetectorConfig(config).fitting_classes == classes


@pytest.mark.parametrize(("others", "left_out"), [([], ()), ([(5, 6), (7, 8)], ("2 more of img_scale: ",))])
def test_of_several_sizes_the_first_is_taken(others, left_out):
    resize = {"type": "Resize", "keep_ratio": True}
    step = {"type": "MultiScaleFlipAug", "img_scale": [(30, 40), *others], "transforms": [resize]}
    config = DetectorConfig({"model": {}, "test_pipeline": [step]})
    assert config.test_pipeline.size == (30, 40)
    texts = config.test_time_augmentation
    assert len(texts) == len(left_out)
    assert all(text.startswith(beginning) for text, beginning in zip(texts, left_out, strict=True))


def test_views_of_mmdetection_3_are_left_out():
    assert DetectorConfig({"model": {}, "tta_model": {"type": "DetTTAModel"}}).test_time_augmentation == (
        "test-time augmentation (tta_model): the file detects in one view, at one scale",
    )
    assert DetectorConfig({"model": {}}).test_time_augmentation == ()
