"""Examples for annotation tools, run by the tools' own packages, without their servers."""

import base64
import dataclasses
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import PIL.Image
import pytest
import yaml

from mmort import Predictor
from mmort.demo import IMAGES, MODEL

FOLDER = Path(__file__).parents[2] / "examples" / "annotate"
PREDICT = Predictor(MODEL)
FOUND = PREDICT(IMAGES[0])
LABELS = PREDICT.classes


@pytest.fixture
def annotate(monkeypatch):
    """Return a function that lets CVAT's SDK annotate a task of one image, and returns what it would upload."""
    import cvat_sdk.auto_annotation as cvataa
    from cvat_sdk import models

    sample = SimpleNamespace(
        frame_name="a.png", frame_index=7, media=SimpleNamespace(load_image=lambda: PIL.Image.open(IMAGES[0]))
    )
    labels = [
        models.Label(name=name, id=100 + number, type="any", attributes=[], sublabels=[])
        for number, name in enumerate(LABELS)
    ]
    task = SimpleNamespace(labels=labels, samples=[sample])
    monkeypatch.setattr("cvat_sdk.auto_annotation.driver.TaskDataset", lambda *args, **kwargs: task)
    function = runpy.run_path(str(FOLDER / "cvat_function.py"))["create"](MODEL)

    def run(masks=True, **options):
        if not masks:
            function.predict = lambda image: dataclasses.replace(FOUND, stored_masks=None)
        uploads = []
        api = SimpleNamespace(
            update_annotations=lambda _, labeled_data_request: uploads.append(labeled_data_request.shapes)
        )
        client = SimpleNamespace(logger=SimpleNamespace(info=print), tasks=SimpleNamespace(api=api))
        cvataa.annotate_task(client, 1, function, clear_existing=True, **options)
        return uploads[0]

    return run


def test_cvat_gets_masks(annotate):
    shapes = annotate()
    assert [shape.label_id - 100 for shape in shapes] == FOUND.labels.tolist()
    assert {(str(shape.type), shape.frame) for shape in shapes} == {("mask", 7)}
    for index, shape in enumerate(shapes):
        *runs, left, top, right, bottom = map(int, shape.points)
        mask = np.zeros(FOUND.image_size, bool)
        values = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
        mask[top : bottom + 1, left : right + 1] = values.reshape(bottom + 1 - top, right + 1 - left)
        np.testing.assert_array_equal(mask, FOUND.mask(index))
    assert len(annotate(conf_threshold=0.9)) == len(FOUND.above(0.9)) < len(shapes)


def test_cvat_gets_polygons(annotate):
    shapes = annotate(conv_mask_to_poly=True, conf_threshold=0.9)
    assert {str(shape.type) for shape in shapes} == {"polygon"}
    labels = FOUND.above(0.9).labels
    assert {shape.label_id - 100 for shape in shapes} == {*labels.tolist()}
    box = FOUND.boxes[0]
    first = np.reshape(shapes[0].points, (-1, 2))
    np.testing.assert_allclose([*first.min(0), *(first.max(0) + 1)], box, atol=2)


def test_cvat_gets_boxes(annotate):
    shapes = annotate(masks=False)
    assert {str(shape.type) for shape in shapes} == {"rectangle"}
    np.testing.assert_allclose([shape.points for shape in shapes], FOUND.boxes)


@pytest.fixture
def call_nuclio():
    """Return a function that calls the one of CVAT's server with nuclio's own objects."""
    import nuclio_sdk

    program = runpy.run_path(str(FOLDER / "nuclio" / "main.py"))
    program["init_context"].__globals__["MODEL"] = MODEL
    context = nuclio_sdk.Context()
    program["init_context"](context)

    def call(masks=True, **options):
        if not masks:
            context.user_data.predict = lambda image: dataclasses.replace(FOUND, stored_masks=None)
        image = base64.b64encode(IMAGES[0].read_bytes()).decode()
        answer = program["handler"](context, nuclio_sdk.Event(body={"image": image, **options}))
        assert (answer.status_code, answer.content_type) == (200, "application/json")
        return json.loads(answer.body)

    return call


def test_nuclio_gets_masks(call_nuclio):
    shapes = call_nuclio()
    assert [shape["label"] for shape in shapes] == list(FOUND.names)
    for index, shape in enumerate(shapes):
        assert shape["type"] == "mask"
        assert float(shape["confidence"]) == pytest.approx(FOUND.scores[index])
        *pixels, left, top, right, bottom = shape["mask"]
        mask = np.zeros(FOUND.image_size, bool)
        mask[top : bottom + 1, left : right + 1] = np.reshape(pixels, (bottom - top + 1, right - left + 1))
        np.testing.assert_array_equal(mask, FOUND.mask(index))
        corners = np.reshape(shape["points"], (-1, 2))
        assert (corners >= (left, top)).all()
        assert (corners <= (right, bottom)).all()
    assert len(call_nuclio(threshold=0.9)) == len(FOUND.above(0.9)) < len(shapes)


def test_nuclio_gets_boxes(call_nuclio):
    shapes = call_nuclio(masks=False)
    assert {shape["type"] for shape in shapes} == {"rectangle"}
    np.testing.assert_allclose([shape["points"] for shape in shapes], FOUND.boxes, rtol=1e-6)


def test_labels_of_the_function_are_the_detectors():
    """CVAT reads them as JSON."""
    function = yaml.safe_load((FOLDER / "nuclio" / "function.yaml").read_text())
    labels = json.loads(function["metadata"]["annotations"]["spec"])
    assert [label["name"] for label in labels] == list(LABELS[: len(labels)])
    assert {label["type"] for label in labels} == {"mask"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flask 1.1.2, which label-studio-ml requires
def test_label_studio_gets_boxes(monkeypatch):
    monkeypatch.setenv("MODEL", str(MODEL))
    program = runpy.run_path(str(FOLDER / "label_studio_backend.py"))
    client = program["init_app"](program["Detector"]).test_client()
    labels = "".join(f'<Label value="{name}"/>' for name in LABELS)
    config = (
        '<View><Image name="photo" value="$image"/>'
        f'<RectangleLabels name="digit" toName="photo">{labels}</RectangleLabels></View>'
    )
    tasks = [{"id": 1, "data": {"image": f"/data/local-files/?d={IMAGES[0]}"}}]
    client.post("/setup", json={"project": "1.1", "schema": config})
    answer = json.loads(client.post("/predict", json={"tasks": tasks, "project": "1.1", "label_config": config}).data)
    (prediction,) = answer["results"]
    assert prediction["score"] == pytest.approx(float(FOUND.scores.mean()))
    assert [result["value"]["rectanglelabels"] for result in prediction["result"]] == [[name] for name in FOUND.names]
    height, width = FOUND.image_size
    for result, box in zip(prediction["result"], FOUND.xywh, strict=True):
        assert (result["from_name"], result["to_name"], result["type"]) == ("digit", "photo", "rectanglelabels")
        assert (result["original_width"], result["original_height"]) == (width, height)
        values = [result["value"][side] for side in ("x", "y", "width", "height")]
        np.testing.assert_allclose(values, 100 * box / [width, height, width, height], rtol=1e-5)
