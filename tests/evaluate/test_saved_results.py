"""Saved results have the figures of the run that they are from, in all formats; nothing that a pickle names is run."""

import io
import json
import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch

import mmort.evaluate
from mmort import Predictor, demo
from mmort.evaluate import CocoDataset, DatasetWarning, read_results, score_results
from mmort.evaluate.pickles import read_pickle
from mmort.predict import PredictOptions, predict

METRICS = ["bbox", "segm"]


@pytest.fixture(scope="module")
def digits():
    return CocoDataset(demo.ANNOTATIONS, demo.IMAGES[0].parent)


@pytest.fixture(scope="module")
def saved(digits, tmp_path_factory):
    """The folder with the results of a run, and its figures."""
    folder = tmp_path_factory.mktemp("saved")
    options = mmort.evaluate.TestOptions(
        metrics=METRICS, output=folder / "results.pkl", metric_options={"jsonfile_prefix": str(folder / "results")}
    )
    result = mmort.evaluate.test(demo.MODEL, digits, options=options)
    predict(Predictor(demo.MODEL, score_threshold=0), demo.IMAGES, PredictOptions(output=folder))
    return folder, result.metrics.figures


@pytest.mark.parametrize(
    ("name", "metrics"),
    [("results.pkl", METRICS), ("results.bbox.json", ["bbox"]), ("detections.jsonl", METRICS)],
)
def test_figures_are_those_of_the_run(digits, saved, name, metrics):
    folder, expected = saved
    figures = score_results(folder / name, digits, options=mmort.evaluate.TestOptions(metrics=metrics)).metrics.figures
    assert figures == pytest.approx({key: expected[key] for key in figures}, abs=1e-12)
    assert len(figures) == 6 * len(metrics)


def test_masks_in_cocos_format_bring_boxes(digits, saved):
    folder, expected = saved
    with pytest.warns(DatasetWarning, match=r"results\.segm\.json has no boxes; those of its masks are used"):
        figures = score_results(
            folder / "results.segm.json", digits, options=mmort.evaluate.TestOptions(metrics=["segm"])
        ).metrics
    assert figures.figures == pytest.approx({key: expected[key] for key in figures.figures}, abs=1e-12)


def test_pickles_of_mmdetection_3(digits, saved, tmp_path):
    """Lists of dicts with tensors of torch, in any order."""
    folder, expected = saved
    entries = []
    for image, result in zip(digits.images, read_results(folder / "results.pkl", digits), strict=True):
        instances = {
            "bboxes": torch.from_numpy(result.boxes),
            "scores": torch.from_numpy(result.scores),
            "labels": torch.from_numpy(result.labels),
            "masks": [dict(mask) for mask in result.masks],
        }
        entries.append({"img_id": image.id, "ori_shape": (9, 9), "pred_instances": instances})
    (tmp_path / "results.pkl").write_bytes(pickle.dumps(entries[::-1]))
    figures = score_results(
        tmp_path / "results.pkl", digits, options=mmort.evaluate.TestOptions(metrics=METRICS)
    ).metrics.figures
    assert figures == pytest.approx(expected, abs=1e-12)
    entries[0]["img_id"] = 77
    (tmp_path / "results.pkl").write_bytes(pickle.dumps(entries))
    with pytest.raises(ValueError, match=f"has no results of {digits.images[0].name}"):
        read_results(tmp_path / "results.pkl", digits)


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_in_pickles(tmp_path, protocol):
    tensors = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    content = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([[1, 2], [3, 4]], order="F"),
        "c": np.float32(0.5),
        "d": [tensors, tensors[1, :, 1::2], tensors.permute(2, 0, 1), torch.tensor(3), torch.zeros(0, 5)],
        "e": [torch.tensor([True, False]), torch.tensor([1, 2], dtype=torch.int32), torch.ones(2).half()],
        "f": OrderedDict(x=b"bytes"),
        "g": np.array([1.5, -2], ">f4"),
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content, protocol))
    read = read_pickle(tmp_path / "a.pkl")
    for name in "abcg":
        np.testing.assert_array_equal(read[name], content[name], strict=True)
    for name in "de":
        for actual, expected in zip(read[name], content[name], strict=True):
            np.testing.assert_array_equal(actual, expected.numpy(), strict=True)
    assert read["f"] == content["f"]


class Hostile:
    """A pickle that calls a function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def inside_of_a_storage(tmp_path):
    """Return the bytes of a storage that name a function."""
    file = io.BytesIO()
    for value in (1, 2, {}, Hostile(os.mkdir, str(tmp_path / "made")), []):
        pickle.dump(value, file)
    return file.getvalue()


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_of_a_pickle_is_run(tmp_path, protocol):
    for hostile in (
        Hostile(os.mkdir, str(tmp_path / "made")),
        Hostile(torch.storage._load_from_bytes, inside_of_a_storage(tmp_path)),
        Hostile(getattr, "x", "upper"),
        Hostile(torch.load, "x"),
    ):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps([hostile], protocol))
        with pytest.raises(ValueError, match=r"a\.pkl is not a pickle of results: it asks for .*, which is not run"):
            read_pickle(tmp_path / "a.pkl")
    assert not (tmp_path / "made").exists()


def test_lists_in_lists(tmp_path):
    """One list, 2 ** 100 times; and one that holds itself."""
    content = [np.ones(2)]
    for _ in range(100):
        content = [content, content]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content))
    read = read_pickle(tmp_path / "a.pkl")
    for _ in range(100):
        assert read[0] is read[1]
        read = read[0]
    content = []
    content.append(content)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="is not a pickle of results"):
        read_pickle(tmp_path / "a.pkl")


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((9,), (1,), 0), ((4,), (1,), -1), ((2, 2), (4, 1), 0), ((4,), (1,), 2), ((10**12,), (0,), 0)],
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_tensors_beyond_their_storage(tmp_path, size, stride, offset):
    rebuilt = Hostile(
        torch._utils._rebuild_tensor_v2, torch.ones(5).storage(), offset, size, stride, False, OrderedDict()
    )
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(rebuilt))
    with pytest.raises(ValueError, match="a tensor is larger than its storage"):
        read_pickle(tmp_path / "a.pkl")


def test_thresholds_are_told(digits, tmp_path):
    predict(Predictor(demo.MODEL), demo.IMAGES, PredictOptions(output=tmp_path))
    with pytest.warns(
        DatasetWarning, match=r"has no scores below 0\.3, which metrics count; mmort predict --score-thr 0"
    ):
        read_results(tmp_path / "detections.jsonl", digits)


def test_names_of_lines_are_matched(digits, saved, tmp_path):
    """Whatever their labels; of classes that the data set does not have, nothing is read."""
    names = digits.classes[::-1][:5]
    with pytest.warns(UserWarning, match="another order"):
        other = CocoDataset(demo.ANNOTATIONS, demo.IMAGES[0].parent, names)
    by_name = CocoDataset(demo.ANNOTATIONS, demo.IMAGES[0].parent, names, labels_by_name=True)
    everything = read_results(saved[0] / "detections.jsonl", digits)
    for result, whole in zip(read_results(saved[0] / "detections.jsonl", by_name), everything, strict=True):
        expected = [digits.classes[label] for label in whole.labels if digits.classes[label] in names]
        assert [names[label] for label in result.labels] == expected
    assert len(other) == len(digits)


def changed(saved, name, change):
    """Return the text of results after a change of the parsed ones."""
    lines = (saved[0] / name).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    change(rows if name.endswith("l") else rows[0])
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("results.bbox.json", lambda rows: rows[3].update(image_id=99), r"\[3\]\.image_id in .* is no image .*: 99"),
        ("results.bbox.json", lambda rows: rows[3].pop("score"), "not in the format of its suffix: KeyError: 'score'"),
        (
            "results.bbox.json",
            lambda rows: rows[3].update(bbox=[1, 2, 3]),
            "not in the format of its suffix: ValueError",
        ),
        ("results.bbox.json", lambda rows: rows[3].update(score=float("nan")), "must have a finite box and score"),
        ("results.bbox.json", lambda rows: rows.append(5), "must be a list of detections"),
        ("results.segm.json", lambda rows: rows[0]["segmentation"].update(counts="~"), "a mask of the results must be"),
        ("detections.jsonl", lambda rows: rows.pop(), "must have one line of each image of the data set, also of "),
        ("detections.jsonl", lambda rows: rows.append(rows[0]), "must have one line of each image of the data set"),
        (
            "detections.jsonl",
            lambda rows: [row.update(name="x") for line in rows for row in line["detections"]],
            "has no detection of the classes zero, .*; it has x",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*has no boxes")
def test_wrong_results(digits, saved, tmp_path, name, change, message):
    (tmp_path / name).write_text(changed(saved, name, change))
    with pytest.raises(ValueError, match=message):
        read_results(tmp_path / name, digits)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (5, "an entry for each of 4 images, got a int"),
        ([[]], "an entry for each of 4 images, got 1 entries"),
        ([[np.zeros((0, 5))] * 9] * 4, "a list of 10 arrays for each image, one for each class of the data set; got 9"),
        ([{"pan_results": 5}] * 4, "a list of 10 arrays for each image, .* got dict"),
        ([[np.zeros(3)] * 10] * 4, "not in the format of its suffix: "),
    ],
)
def test_wrong_pickles(digits, tmp_path, content, message):
    (tmp_path / "results.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=message):
        read_results(tmp_path / "results.pkl", digits)


def test_refused(digits, saved, tmp_path):
    for options, message in (
        ({"metrics": ["PQ"]}, "PQ needs a detector"),
        ({"metrics": ["mAP"]}, "metric 'mAP' is not one of this data set"),
    ):
        with pytest.raises(ValueError, match=message):
            score_results(saved[0] / "results.pkl", digits, options=mmort.evaluate.TestOptions(**options))
    with pytest.raises(ValueError, match=r"results must be one of .pkl, .pickle, .json, .jsonl, got x.txt"):
        read_results("x.txt", digits)
    for damage in (b"", b"\x80", (saved[0] / "results.pkl").read_bytes()[:500]):
        (tmp_path / "results.pkl").write_bytes(damage)
        with pytest.raises(ValueError, match=r"results\.pkl is not a pickle of results"):
            read_results(tmp_path / "results.pkl", digits)
