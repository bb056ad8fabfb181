"""Data sets and options are found in configs of MMDetection 2 and 3, and their paths can be replaced."""

import contextlib
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmort.configs import class_names
from mmort.evaluate import (
    ClassificationDataset,
    Coco90Dataset,
    CocoDataset,
    DatasetWarning,
    VocDataset,
    batch_size_of,
    dataset_of,
    metric_options,
)

DIGITS = "0", "1"


@pytest.fixture
def root(tmp_path):
    """Annotations of two digits, and an image set, below a directory that no config names."""
    (tmp_path / "annotations").mkdir()
    categories = [{"id": 5 + label, "name": name} for label, name in enumerate(DIGITS)]
    content = {"images": [{"id": 1, "file_name": "x/1.png"}], "categories": categories, "annotations": []}
    (tmp_path / "annotations" / "test.json").write_text(json.dumps(content))
    (tmp_path / "VOC2012").mkdir()
    (tmp_path / "VOC2012" / "test.txt").write_text("2012_1\n")
    return tmp_path


def two(root, **entries):
    """Return a config of MMDetection 2."""
    prefix = f"{root}/" if str(root) else ""
    entry = {"type": "CocoDataset", "ann_file": f"{prefix}annotations/test.json", "img_prefix": f"{prefix}images/"}
    return {"data": {"test": entry | {"classes": DIGITS} | entries}}


def three(root, **entries):
    """Return a config of MMDetection 3."""
    entry = {"type": "mmdet.CocoDataset", "data_root": f"{root}/", "ann_file": "annotations/test.json"}
    entry |= {"data_prefix": {"img": "images/"}, "metainfo": {"classes": DIGITS}}
    return {"test_dataloader": {"dataset": entry | entries}}


@pytest.mark.parametrize("config", [two, three])
def test_coco(root, config):
    dataset = dataset_of(config(root), classes=DIGITS)
    assert (dataset.category_ids, dataset.classes) == ([5, 6], DIGITS)
    assert [(image.id, image.path) for image in dataset.images] == [(1, root / "images" / "x" / "1.png")]


def test_types_of_mmyolo(root):
    dataset = dataset_of(three(root, type="YOLOv5CocoDataset", batch_shapes_cfg=None), classes=DIGITS)
    assert (type(dataset), dataset.category_ids) == (CocoDataset, [5, 6])
    config = three(root, type="mmyolo.YOLOv5VOCDataset", ann_file="VOC2012/test.txt")
    assert isinstance(dataset_of(config, classes=DIGITS), VocDataset)


def test_coco_90(root):
    """A detector with labels that have no name, and annotations that are given instead of the config's."""
    config = three(root, type="Coco90Dataset", metainfo=None)
    path = root / "given.json"
    categories = [{"id": 1, "name": "cat"}, {"id": 3, "name": "dog"}]
    path.write_text(json.dumps({"images": [], "categories": categories, "annotations": []}))
    dataset = dataset_of(config, classes=["cat", "1", "dog"], annotation_file=path)
    assert isinstance(dataset, Coco90Dataset)
    assert dataset.category_ids == [1, 1, 3]
    with pytest.raises(ValueError, match="has no category person, bicycle"):
        dataset_of(config, annotation_file=path)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("CityscapesDataset", "CityScapesMetric"),
        ("LVISV1Dataset", "LVISMetric"),
        ("Objects365V2Dataset", None),
        ("iSAIDDataset", None),
        ("OpenImagesDataset", "OpenImagesMetric"),
        ("CrowdHumanDataset", "CrowdHumanMetric"),
    ],
)
def test_types_that_are_measured_as_coco(root, kind, metric):
    """A warning names the metric of MMDetection, if it has another one."""
    config = three(root, type=kind, metainfo={}, data_prefix={"img": "images/"})
    with contextlib.ExitStack() as stack:
        if metric is not None:
            message = f"a {kind} is measured by COCO's metrics; MMDetection measures it by its {metric}"
            stack.enter_context(pytest.warns(DatasetWarning, match=message))
        datasets = [dataset_of(config), dataset_of(config, annotation_file=root / "annotations/test.json")]
        assert dataset_of(config, classes=["1"]).category_ids == [6]
    for dataset in datasets:
        assert (type(dataset), dataset.classes, dataset.category_ids) == (CocoDataset, DIGITS, [5, 6])
    assert isinstance(dataset_of(config, classes=["a"], annotation_file=root / "VOC2012/test.txt"), VocDataset)


@pytest.mark.parametrize(("kind", "file"), [("OpenImagesDataset", "x.csv"), ("CrowdHumanDataset", "x.odgt")])
def test_formats_that_are_not_read(root, kind, file):
    message = rf"annotations of a {kind} must be in COCO's format, a \.json file \(--ann FILE\.json\), got .*{file}"
    with pytest.raises(ValueError, match=message):
        dataset_of(three(root, type=kind, ann_file=file))


def test_labels_of_objects365(root):
    """The files of its first version list the categories in different orders; MMDetection counts them by id."""
    config = three(root, type="Objects365V1Dataset", metainfo={})
    path = root / "annotations" / "test.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"categories": content["categories"][::-1]}))
    assert dataset_of(config, classes=DIGITS).category_ids == [5, 6]


def test_images_of_lvis_have_addresses(root):
    path = root / "annotations" / "test.json"
    image = {"id": 7, "coco_url": "http://images.cocodataset.org/val2017/000000000007.jpg"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"images": [image]}))
    (image,) = dataset_of(two(root)).images
    assert image.path == root / "images" / "val2017" / "000000000007.jpg"


@pytest.mark.parametrize(
    "config",
    [
        two("data") | {"data_root": "data/"},
        two("", data_root="data/"),
        two(""),
        three("data"),
        {
            "test_dataloader": {
                "dataset": {"type": "RepeatDataset", "dataset": three("data")["test_dataloader"]["dataset"]}
            }
        },
        {"data": {"test": [two("")["data"]["test"]]}},
    ],
)
def test_data_root(root, config):
    dataset = dataset_of(config, data_root=root)
    assert dataset.images[0].path == root / "images" / "x" / "1.png"


def test_several(root):
    """The forms of MMDetection 2 and 3; each set has its images, and an argument cannot name one of them."""
    one = two("")["data"]["test"]
    listed = one | {"ann_file": [one["ann_file"]] * 2, "img_prefix": ["first", "second"]}
    both = [one | {"img_prefix": name} for name in listed["img_prefix"]]
    for test in (both, listed, {"type": "ConcatDataset", "datasets": both}):
        for config in ({"data": {"test": test}}, {"test_dataloader": {"dataset": test}}):
            dataset = dataset_of(config, data_root=root)
            assert [image.path.relative_to(root).parts[0] for image in dataset.images] == ["first", "second"]
            assert dataset.classes == DIGITS
            assert metric_options({"evaluation": {"classwise": True}}, dataset) == {"classwise": True}
    with pytest.raises(ValueError, match="the config tests on 2 data sets"):
        dataset_of(config, image_dir=root)
    both[1] = both[1] | {"classes": ["1"]}
    with pytest.raises(
        ValueError, match="must have the same type and classes; the classes of data sets 1 and 2 differ"
    ):
        dataset_of({"data": {"test": both}}, data_root=root)


def test_replaced_files(root):
    annotations = root / "annotations" / "test.json"
    for config in (two("nowhere"), three("nowhere"), None):
        dataset = dataset_of(config, annotation_file=annotations, image_dir=root / "other")
        assert dataset.images[0].path == root / "other" / "x" / "1.png"
    assert dataset.classes == DIGITS
    assert dataset_of(None, classes=["1"], annotation_file=annotations, image_dir="").category_ids == [6]


def test_voc(root):
    entry = {"type": "VOCDataset", "ann_file": "VOC2012/test.txt"}
    dataset = dataset_of({"data": {"test": entry | {"data_root": root, "img_prefix": "VOC2012/"}}})
    assert dataset.images[0].path == root / "VOC2012" / "JPEGImages" / "2012_1.jpg"
    assert (dataset.classes, dataset.folder) == (class_names.VOC, root / "VOC2012")
    entry |= {"data_prefix": {"sub_data_root": "VOC2012/"}, "data_root": root, "img_subdir": "I", "ann_subdir": "A"}
    dataset = dataset_of({"test_dataloader": {"dataset": entry}})
    assert dataset.images[0].path == root / "VOC2012" / "I" / "2012_1.jpg"
    assert dataset.annotation_dir == root / "VOC2012" / "A"
    for config in (None, {"data": {"test": {"type": "CocoDataset"}}}):  # the file's suffix decides
        dataset = dataset_of(config, classes=["a"], annotation_file=root / "VOC2012" / "test.txt", image_dir=root)
        assert isinstance(dataset, VocDataset)
    assert (dataset.classes, dataset.folder) == (("a",), root)


def test_classes(root):
    (root / "names.txt").write_text("0\n1\n")
    assert dataset_of(two(root, classes=str(root / "names.txt"))).classes == DIGITS
    assert dataset_of(three(root, metainfo={"CLASSES": ["1"]})).category_ids == [6]
    assert dataset_of(three(root, metainfo=None), classes=["1"]).category_ids == [6]
    with pytest.raises(ValueError, match="detector: 1, 0; data set: 0, 1"):
        dataset_of(two(root), classes=["1", "0"])
    with pytest.raises(ValueError, match=r"no category person, bicycle"):
        dataset_of(two(root, classes=None))
    assert len(class_names.COCO) == 80
    assert len(class_names.VOC) == 20


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model": {}}, "neither data.test nor test_dataloader.dataset"),
        (two("", ann_file=["a", "b"], separate_eval=False), "separate_eval=False is not supported"),
        (
            {"test_dataloader": {"dataset": {"type": "mmpretrain.KFoldDataset", "dataset": {"ann_file": "a"}}}},
            "test data set KFoldDataset is not supported, as it chooses or repeats images",
        ),
        (
            two("", type="WIDERFaceDataset"),
            "WIDERFaceDataset is not supported; supported: Coco90Dataset, CocoDataset, CocoPanopticDataset, DOTA",
        ),
        (two("", ann_file=None), "has no ann_file"),
        (None, "without a config"),
    ],
)
def test_refusals(config, message):
    with pytest.raises(ValueError, match=message):
        dataset_of(config)


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"test_dataloader": {"batch_size": 2}}, 2),
        ({"data": {"samples_per_gpu": 8, "test_dataloader": {"samples_per_gpu": 3}, "test": {}}}, 3),
        ({"data": {"samples_per_gpu": 8, "test": {"samples_per_gpu": 4}}}, 4),
        ({"data": {"samples_per_gpu": 8, "test": [{}]}}, 1),
        ({"data": {"test": [{"samples_per_gpu": 2}, {"samples_per_gpu": 3}]}}, 3),
    ],
)
def test_batch_size(config, size):
    assert batch_size_of(config) == size


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", None, [2]], ids=repr)
def test_batch_sizes_that_are_none(size):
    with pytest.raises(
        ValueError, match=rf"the config's batch size must be a positive integer, got {re.escape(repr(size))}"
    ):
        batch_size_of({"test_dataloader": {"batch_size": size}})


def test_options(root):
    dataset = dataset_of(two(root))
    assert metric_options({"evaluation": {"interval": 1, "metric": "bbox", "classwise": True}}, dataset) == {
        "classwise": True
    }
    evaluators = [{"type": "CocoMetric", "proposal_nums": (100, 1, 10), "ann_file": "x"}, {"type": "DumpDetResults"}]
    assert metric_options({"test_evaluator": evaluators}, dataset) == {"proposal_nums": (100, 1, 10)}
    voc = dataset_of(annotation_file=root / "VOC2012" / "test.txt", image_dir=Path(), classes=("a", "b"))
    assert metric_options({"evaluation": {"metric": "mAP", "iou_thr": 0.7}}, voc) == {"iou_thr": 0.7}
    assert metric_options({"test_evaluator": {"type": "VOCMetric"}}, voc) == {"eval_mode": "11points"}
    assert metric_options({"test_evaluator": {"eval_mode": "area"}}, voc) == {"eval_mode": "area"}


@pytest.mark.parametrize("annotations", ["VOC2012/test.txt", "VOC2012"])
def test_classes_that_nothing_names(root, annotations):
    with pytest.raises(ValueError, match=r"the detector has no class names, and .* does not say which label is which"):
        dataset_of(annotation_file=root / annotations, image_dir=Path())


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"metainfo": "x"}, "metainfo of the config's data set must be a dict, got 'x'"),
        ({"metainfo": {"classes": 5}}, "classes of the config's data set must be a list of names, got 5"),
        ({"classes": ["a", 1]}, "classes of the config's data set must be a list of names"),
        ({"data_prefix": ["x"]}, "data_prefix of the config's data set must be a dict"),
        ({"data_prefix": {"img": 5}}, r"data_prefix\.img of the config's data set must be a path, got 5"),
        ({"ann_file": 1.5}, r"ann_file of the config's data set must be a path, got 1\.5"),
        ({"data_root": ["x"]}, "data_root of the config's data set must be a path"),
    ],
)
def test_entries_of_other_types(entries, message):
    entry = {"type": "CocoDataset", "ann_file": "a.json", "data_prefix": {"img": "x"}, **entries}
    with pytest.raises(ValueError, match=f"^evaluate: {message}"):
        dataset_of({"test_dataloader": {"dataset": entry}})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"indices": 3}, "indices of the config's data set must be None, got 3"),
        ({"sample_interval": 2}, "sample_interval of the config's data set must be 1, got 2"),
        ({"data_mode": "bottomup"}, "data_mode of the config's data set must be 'topdown', got 'bottomup'"),
        ({"diff_thr": 0}, "diff_thr of the config's data set must be 100, got 0"),
        ({"difficulty": 1}, "difficulty of the config's data set must be 100, got 1"),
        ({"bbox_file": "x", "filter_cfg": {"bbox_score_thr": 0.5}}, "filter_cfg with bbox_score_thr"),
    ],
)
def test_entries_that_leave_images_or_boxes_out(root, entries, message):
    with pytest.raises(ValueError, match=f"^evaluate: {message}"):
        dataset_of(three(root, **entries))
    assert dataset_of(three(root, filter_cfg={"filter_empty_gt": True}, indices=None)).category_ids == [5, 6]


@pytest.mark.parametrize(
    ("names", "classes", "truth"),
    [
        (("floor", "building"), (), [255, 255, 1, 255, 0]),
        (None, ("floor", "building"), [255, 255, 1, 255, 0]),
        (None, (), [255, 0, 1, 2, 3]),
        (None, tuple(map(str, range(150))), [255, 0, 1, 2, 3]),
    ],
    ids=["of the config", "of the model", "of the type", "other words"],
)
def test_some_classes_of_maps(tmp_path, names, classes, truth):
    """Labels of ADE20K's maps stay ADE20K's where a model has only some of its classes."""
    for name, suffix, pixels in (("img", "jpg", np.zeros((1, 5, 3), np.uint8)), ("maps", "png", np.arange(5)[None])):
        (tmp_path / name).mkdir()
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"a.{suffix}")
    entry = {"type": "ADE20KDataset", "data_root": str(tmp_path)}
    entry |= {"data_prefix": {"img_path": "img", "seg_map_path": "maps"}, "metainfo": names and {"classes": names}}
    dataset = dataset_of({"default_scope": "mmseg", "test_dataloader": {"dataset": entry}}, classes=classes)
    assert dataset.truth(0)[0].tolist() == truth


def classification(root, **entries):
    """Return the data set of a config of MMPretrain with two parts of ImageNet."""
    for part, name in itertools.product(("train", "val"), "ab"):
        (root / part / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(root / part / name / f"{part}.png")
    entry = {"type": "ImageNet", "data_root": str(root), **entries}
    dataset = dataset_of({"default_scope": "mmpretrain", "test_dataloader": {"dataset": entry}}, classes=("x", "y"))
    paths = [image.path.relative_to(root).as_posix() for image in dataset.images]
    return list(zip(paths, dataset.labels, strict=True))


def test_options_of_other_metrics(tmp_path):
    """Those of an evaluator beside that of the figures, which have the same name, are not taken."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / name / "x.png")
    dataset = ClassificationDataset(tmp_path)
    of_accuracy, other = {"type": "Accuracy", "topk": (1, 2)}, {"type": "SingleLabelMetric", "thrs": 0.9}
    for evaluators in ([of_accuracy, other], [other, of_accuracy]):
        assert metric_options({"test_evaluator": evaluators}, dataset) == {"topk": (1, 2)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topk": ()}, r"topk must be from 1 to the number of classes, 2, got \(\)"),
        ({"topk": (1, 3)}, r"topk must be from 1 to the number of classes, 2, got \(1, 3\)"),
        ({"topk": 1.5}, "topk must be from 1 to the number of classes, 2, got 1.5"),
        ({"thrs": []}, r"thrs must be numbers or None, got \[\]"),
        ({"thrs": "high"}, "thrs must be numbers or None, got 'high'"),
    ],
)
def test_wrong_options_of_accuracy(tmp_path, options, message):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / name / "x.png")
    with pytest.raises(ValueError, match=f"^evaluate: {message}$"):
        ClassificationDataset(tmp_path).check(["accuracy"], options)


def test_parts_of_imagenet(tmp_path):
    assert classification(tmp_path, split="val") == [("val/a/val.png", 0), ("val/b/val.png", 1)]
    assert classification(tmp_path, data_prefix="train") == [("train/a/train.png", 0), ("train/b/train.png", 1)]
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/val.txt").write_text("b/val.png 1\n")
    assert classification(tmp_path, split="val") == [("val/b/val.png", 1)]
    (tmp_path / "meta/other.txt").write_text("b/train.png 0\n")
    assert classification(tmp_path, split="train", ann_file="meta/other.txt") == [("train/b/train.png", 0)]
    for entries, message in (
        ({"split": "test"}, "split of the config's data set must be 'train' or 'val', got 'test'"),
        ({"type": "MultiLabelDataset"}, "data set MultiLabelDataset is not supported; supported: CustomDataset"),
        ({"extensions": [".jpg"]}, "extensions of the config's data set is not supported"),
        ({"with_label": False}, "with_label of the config's data set is not supported"),
    ):
        with pytest.raises(ValueError, match=f"^evaluate: {message}"):
            classification(tmp_path, **entries)
