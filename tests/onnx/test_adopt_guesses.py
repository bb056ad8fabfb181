"""Facts and guesses of `mmort adopt`: nothing is written that neither the file, nor a run, nor the user says."""

import json

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import torch

import mmort
import mmort.onnx
from mmort.demo import IMAGES
from mmort.onnx.adopt import Question, evidence
from mmort.onnx.adopt.foreign_file import cells
from mmort.onnx.adopt.layout import Layout
from mmort.onnx.adopt.presets import PRESETS
from mmort.predict import read_image, write_image
from tests.cli.running import refused, run
from tests.onnx.foreign import CLASSES, HEIGHT, WIDTH, corners, detect, suppressed, ultralytics, write

RNG = np.random.default_rng(13)
CELLS = cells([WIDTH, HEIGHT], [8, 16, 32])


def grid_boxes(count=CELLS):
    """Return boxes cx, cy, w, h in pixels, for each cell."""
    return np.concatenate([RNG.uniform(10, 60, (count, 2)), RNG.uniform(10, 30, (count, 2))], 1)


def asked(path, *arguments):
    """Adopt a file on the command line, which must ask and write nothing; return the lines of the question."""
    before = set(path.parent.iterdir())
    code, out, error = run("adopt", path, "-o", path.with_name("asked.onnx"), *arguments)
    assert (code, out) == (2, "")
    assert set(path.parent.iterdir()) == before
    return error.splitlines()


def presets_in(lines):
    """Return the presets among the lines of a question."""
    return [line.split()[1] for line in lines if line.startswith("  --preset ")]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (lambda: RNG.uniform(0.1, 1, (CELLS, 4)), ["yolox", "yolox-legacy", "yolov8", "yolov9"]),
        (
            lambda: np.concatenate([np.ones((CELLS, 1)), RNG.uniform(0.1, 1, (CELLS, 3))], 1),
            ["yolov6", "yolov8", "yolov9"],
        ),
    ],
)
def test_a_row_for_each_cell_may_be_of_several_exporters(tmp_path, columns, expected):
    """YOLOX, YOLOv6 and a transposed YOLOv8 have the same shape."""
    rows = np.concatenate([grid_boxes(), columns()], 1)
    path = write(tmp_path / "any.onnx", {"output": rows}, image=(1, 3, HEIGHT, WIDTH))
    lines = asked(path)
    assert "the file does not say its exporter, nor how an image becomes its input" in lines[0]
    assert presets_in(lines) == expected
    assert any(line.startswith("  --try IMAGE") for line in lines)
    assert lines[-1].endswith(f"its outputs: output [1, {CELLS}, 8]")
    mmort.onnx.adopt(path, tmp_path / "a.onnx", preset=expected[0])


def network(path, *, scale, threshold=0.0, colour=None):
    """Write a file with a row for each cell, whose best score grows with an image's contrast times `scale`.

    Values that are `scale` times too large or small give scores of 1 or 0, as trained networks do.  With `colour`, only
    that channel counts.
    """
    channels = np.zeros((1, 3, 1, 1), np.float32)
    channels[:, slice(None) if colour is None else colour] = 1
    boxes = grid_boxes().astype(np.float32)
    tensors = {
        "channels": channels,
        "scale": np.float32(scale),
        "threshold": np.float32(threshold),
        "boxes": boxes[None],
        "spread": np.linspace(0.2, 1, CELLS, dtype=np.float32).reshape(1, -1, 1),
        "ones": np.ones((1, CELLS, 2), np.float32),
    }
    nodes = [
        oh.make_node("Mul", ["images", "channels"], ["chosen"]),
        oh.make_node("ReduceMax", ["chosen"], ["largest"], axes=[1, 2, 3], keepdims=0),
        oh.make_node("ReduceMin", ["chosen"], ["smallest"], axes=[1, 2, 3], keepdims=0),
        oh.make_node("Sub", ["largest", "smallest"], ["contrast"]),
        oh.make_node("Mul", ["contrast", "scale"], ["scaled"]),
        oh.make_node("Sub", ["scaled", "threshold"], ["above"]),
        oh.make_node("Mul", ["spread", "above"], ["logits"]),
        oh.make_node("Sigmoid", ["logits"], ["objectness"]),
        oh.make_node("Concat", ["boxes", "objectness", "ones"], ["output"], axis=2),
    ]
    image = oh.make_tensor_value_info("images", 1, [1, 3, HEIGHT, WIDTH])
    output = oh.make_tensor_value_info("output", 1, [1, CELLS, 7])
    weights = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()]
    graph = oh.make_graph(nodes, "network", [image], [output], weights)
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_run_shows_the_range_of_values(tmp_path):
    """A network that takes levels from 0 to 255 sees nothing in those from 0 to 1: it is YOLOX's newer preprocessing.

    The outputs are those of YOLOX alone, as boxes are offsets in cells.
    """
    path = network(tmp_path / "any.onnx", scale=8 / 255, threshold=4)
    model = onnx.load(path)
    boxes = next(tensor for tensor in model.graph.initializer if tensor.name == "boxes")
    raw = RNG.uniform(0, 1, (1, CELLS, 4)).astype(np.float32)
    boxes.CopyFrom(onnx.numpy_helper.from_array(raw, "boxes"))
    onnx.save(model, path)
    text = str(mmort.onnx.adopt(path, tmp_path / "a.onnx"))
    assert text.startswith("file of  YOLOX\n")
    assert "\nguessed, as the file does not say it: yolox; in a run on 4 images, scores reach 0." in text
    assert "with other ranges of values" in text


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"names": "['cat', 'dog', 'owl']"}, "there are 3 names of classes, and 2 scores of a box"),
        ({"task": "pose"}, "task is pose"),
        ({"task": "object_detection", "names": "['cat', 'dog']"}, None),
    ],
)
def test_metadata_of_others_that_contradicts_a_guess(tmp_path, metadata, reason):
    """A run has evidence for YOLOX, whose outputs are as those of other tasks and with as many columns."""
    path = network(tmp_path / "any.onnx", scale=8 / 255, threshold=4)
    model = onnx.load(path)
    boxes = next(tensor for tensor in model.graph.initializer if tensor.name == "boxes")
    boxes.CopyFrom(onnx.numpy_helper.from_array(RNG.uniform(0, 1, (1, CELLS, 4)).astype(np.float32), "boxes"))
    oh.set_model_props(model, metadata)
    onnx.save(model, path)
    if reason is None:
        assert mmort.onnx.adopt(path, tmp_path / "a.onnx").layout.classes == ["cat", "dog"]
        return
    (line,) = asked(path)
    assert (
        f"the file's metadata contradicts all exporters that write its outputs: {reason}; pass --preset yolox" in line
    )
    mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolox")


def test_a_network_that_takes_values_from_0_to_1_is_no_yolox(tmp_path):
    """With levels from 0 to 255 all of its scores are 1, and ImageNet's range gives what its own does: a question."""
    path = network(tmp_path / "any.onnx", scale=8, threshold=4)
    lines = asked(path)
    (line,) = (line for line in lines if line.startswith("  --preset yolox "))
    assert line.endswith("(contradicted: the best scores of 4 of 4 images are 1)")


def test_what_the_candidates_find_in_an_image_is_drawn(tmp_path):
    path = network(tmp_path / "any.onnx", scale=8, threshold=4)
    sheet = tmp_path / "sheet.png"
    code, _, error = run("adopt", path, "-o", tmp_path / "a.onnx", "--try", IMAGES[0], "--show", sheet)
    assert code == 2
    assert not (tmp_path / "a.onnx").exists()
    assert f"  {sheet} has the candidates side by side" in error.splitlines()
    width = read_image(sheet).shape[1]
    command = ("adopt", path, "-o", tmp_path / "a.onnx", "--show", sheet)
    assert "show must come with try_image" in refused(*command)
    assert f"exists: {sheet}; --force replaces it" in refused(*command, "--try", IMAGES[0])
    mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolov8", try_image=IMAGES[0], show=sheet, force=True)
    assert read_image(sheet).shape[1] < width / 2


def test_presets_have_sources():
    code, text, _ = run_presets()
    assert code == 0
    lines = text.splitlines()
    assert len(lines) == len(PRESETS)
    for name, line in zip(PRESETS, lines, strict=True):
        assert line.startswith(f"{name} ")
        assert "https://github.com/" in line
    assert {"yolox", "yolov5", "yolov6", "yolov7", "yolov9", "ppyoloe", "rtdetr", "dfine"} <= set(PRESETS)


def run_presets():
    """Run mmort adopt --presets, which ends as --version does."""
    import contextlib
    import io

    import mmort.cli

    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as end:
        mmort.cli.main(["adopt", "--presets"])
    return end.value.code, out.getvalue(), ""


def test_a_preset_that_does_not_fit_is_refused(tmp_path):
    path = write(tmp_path / "any.onnx", {"output": np.zeros((5, 9))}, image=(1, 3, HEIGHT, WIDTH))
    command = ("adopt", path, "-o", tmp_path / "a.onnx", "--preset")
    assert "preset yolox must have outputs as YOLOX writes them, got output [1, 5, 9]" in refused(*command, "yolox")
    assert "preset must be one of yolox, " in refused(*command, "yolo")


def test_yolov5_states_its_names_and_stride(tmp_path):
    """Nothing else; three rows for each cell.  Boxes are mapped by the ratio, not by sides in whole pixels."""
    boxes, objectness, scores = (
        grid_boxes(3 * CELLS),
        RNG.uniform(0, 1, (3 * CELLS, 1)),
        RNG.uniform(0, 1, (3 * CELLS, 3)),
    )
    rows = np.concatenate([boxes, objectness, scores], 1)
    metadata = {"stride": "32", "names": str(dict(enumerate(CLASSES)))}
    path = write(tmp_path / "yolov5.onnx", {"output0": rows}, (1, 3, HEIGHT, WIDTH), metadata)
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert (adoption.exporter, adoption.layout.classes, adoption.guessed) == ("YOLOv5", CLASSES, None)
    image = np.zeros((333, 641, 3), np.uint8)
    ratio = min(HEIGHT / 333, WIDTH / 641)
    padding = [(WIDTH - 641 * ratio) / 2, (HEIGHT - 333 * ratio) / 2] * 2
    expected = np.clip((corners(boxes) - padding) / ratio, 0, [641, 333] * 2)
    products = objectness * scores
    kept = suppressed(corners(boxes), products.max(1), products.argmax(1), 0.45)
    detections = detect(tmp_path / "a.onnx", image)
    np.testing.assert_allclose(detections.boxes, expected[kept][: len(detections)], rtol=1e-4, atol=1e-3)
    assert set(detections.names) == set(CLASSES)
    del metadata["names"]
    other = write(tmp_path / "other.onnx", {"output0": rows}, (1, 3, HEIGHT, WIDTH), metadata)
    assert presets_in(asked(other)) == ["yolov5", "yolov7"]


def test_yolov5_of_any_size_is_asked_for(tmp_path):
    """The file does not say which size it was trained for, and its package's default is a guess."""
    count = 3 * cells([640, 480], [8, 16, 32])  # of the image of noise
    rows = np.concatenate([RNG.uniform(50, 400, (count, 4)), RNG.uniform(0, 1, (count, 4))], 1)
    metadata = {"stride": "32", "names": str(dict(enumerate(CLASSES)))}
    path = write(tmp_path / "yolov5.onnx", {"output0": rows}, ("n", 3, "h", "w"), metadata)
    assert presets_in(asked(path)) == ["yolov5", "yolov7"]
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolov5")
    assert "fitted into 640 x 640" in str(adoption)


def test_one_class_of_yolov7(tmp_path):
    """Its score is the objectness, as YOLOv7's own suppression has it; YOLOv5 multiplies both."""
    boxes, scores = grid_boxes(3 * CELLS), RNG.uniform(0, 1, (3 * CELLS, 2))
    path = write(tmp_path / "any.onnx", {"output": np.concatenate([boxes, scores], 1)}, image=(1, 3, HEIGHT, WIDTH))
    for preset, expected in (("yolov7", scores[:, 0]), ("yolov5", scores[:, 0] * scores[:, 1])):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", preset=preset, force=True)
        np.testing.assert_allclose(detect(tmp_path / "a.onnx").scores[0], expected.max(), rtol=1e-5)


@pytest.mark.parametrize(
    "text", ["['cat', 'dog', 'owl']", '["cat", "dog", "owl"]', '{"0": "cat", "1": "dog", "2": "owl"}']
)
def test_names_in_the_metadata_of_others(tmp_path, text):
    rows = np.concatenate([grid_boxes(), RNG.uniform(0.1, 1, (CELLS, 4))], 1)
    path = write(tmp_path / "any.onnx", {"output": rows}, (1, 3, HEIGHT, WIDTH), {"names": text})
    assert mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolox").layout.classes == CLASSES


def test_a_size_in_the_metadata_of_others(tmp_path):
    rows = np.concatenate(
        [grid_boxes(cells([640, 480], [8, 16, 32])), np.ones((6300, 1)), RNG.uniform(0.1, 1, (6300, 2))], 1
    )
    path = write(tmp_path / "any.onnx", {"output": rows}, (1, 3, "h", "w"), {"imgsz": "[480, 640]"})
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolov6")
    assert adoption.layout.prepare.size == (640, 480)


def with_first_nodes(path, *nodes):
    """Let nodes change the image of a file before its network; the last one's output is "changed"."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.input[:] = ["changed" if name == "images" else name for name in node.input]
    network = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *network])
    for key, array in {"order": np.array([2, 1, 0]), "255": np.float32(255), "1/255": np.float32(1 / 255)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), key))
    onnx.save(model, path)


REVERSED = oh.make_node("Gather", ["images", "order"], ["reversed"], axis=1)


@pytest.mark.parametrize(
    ("nodes", "to_rgb", "std"),
    [
        ([REVERSED, oh.make_node("Mul", ["reversed", "1/255"], ["changed"])], False, 1.0),
        ([oh.make_node("Div", ["images", "255"], ["changed"])], True, 1.0),
        ([oh.make_node("Gather", ["images", "order"], ["changed"], axis=1)], False, 255.0),
        ([oh.make_node("Mul", ["images", "255"], ["changed"])], True, 255.0),
    ],
)
def test_a_preset_leaves_out_what_the_file_does_to_images_itself(tmp_path, nodes, to_rgb, std):
    """YOLOv6 exports files that take levels with blue first."""
    rows = np.concatenate([grid_boxes(), np.ones((CELLS, 1)), RNG.uniform(0.1, 1, (CELLS, 2))], 1)
    path = write(tmp_path / "yolov6.onnx", {"outputs": rows})
    with_first_nodes(path, *nodes)
    prepare = mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolov6").layout.prepare
    assert (prepare.to_rgb, prepare.std) == (to_rgb, (std,) * 3)


def test_logits_of_tokens_are_no_classes(tmp_path):
    """Grounding DINO's, which are -inf after the text's last token, have transformers' names."""
    logits = np.concatenate([np.zeros((4, 3)), np.full((4, 2), -np.inf)], 1)
    path = write(tmp_path / "words.onnx", {"pred_boxes": np.full((4, 4), 0.3), "logits": logits})
    with pytest.raises(ValueError, match="preset detr must have outputs as DETR of transformers writes them"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="detr")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {}, "model_type": "grounding-dino"}))
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "GroundingDinoImageProcessor"})
    )
    with pytest.raises(ValueError, match="got GroundingDinoImageProcessor; its logits are of the tokens of a text"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path)


@pytest.mark.parametrize("matches_words", [False, True])
def test_only_presets_that_fit_queries_are_offered(tmp_path, matches_words):
    """An Elu is in files of OWL-ViT and OWLv2, and in no other; OWLv2 has no preset, and no run tells the two."""
    queries = {"logits": RNG.normal(0, 1, (9, 3)), "pred_boxes": RNG.uniform(0.2, 0.5, (9, 4))}
    path = write(tmp_path / "any.onnx", queries, image=(1, 3, HEIGHT, WIDTH), name="pixel_values")
    if matches_words:
        model = onnx.load(path)
        (sum_of_logits,) = (node for node in model.graph.node if "logits/sum" in node.output)
        sum_of_logits.output[:] = ["logits/linear"]
        model.graph.node.insert(
            list(model.graph.node).index(sum_of_logits) + 1, oh.make_node("Elu", ["logits/linear"], ["logits/sum"])
        )
        onnx.save(model, path)
    expected = ["owlvit"] if matches_words else ["rtdetr-transformers"]
    for more in ([], ["--try", IMAGES[0]] if matches_words else []):
        lines = asked(path, *more)
        assert "pass --config DIR, the folder with config.json and preprocessor_config.json" in lines[0]
        assert presets_in(lines[:2]) == expected
        of_other_sizes = (
            f"  --preset detr or yolos with --set preprocessing.size={WIDTH},{HEIGHT} preprocessing.keep_ratio=false"
        )
        assert lines[2].startswith(of_other_sizes) != matches_words  # by default, they make inputs of another size
        owlv2 = "  OWLv2, whose outputs are the same, has no preset: it blurs images before it resizes them"
        assert any(line.startswith(owlv2) for line in lines) == matches_words
        advice = [line.index("an image with") for line in lines if line.startswith("  --try IMAGE")]
        assert advice == ([] if matches_words else [len("  --preset rtdetr-transformers  ")])  # below its description
    wrong = "detr" if matches_words else "owlvit"
    with pytest.raises(ValueError, match=f"preset {wrong} must have outputs as"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", preset=wrong)
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", preset=expected[-1])
    assert adoption.layout.prepare.size == (WIDTH, HEIGHT)
    if not matches_words:
        stretched = {"preprocessing": {"size": [WIDTH, HEIGHT], "keep_ratio": False}}
        mmort.onnx.adopt(path, tmp_path / "b.onnx", stretched, preset="detr")


@pytest.mark.parametrize("count", [5, 310])
@pytest.mark.parametrize("preset", ["detr", "rtdetr-transformers"])
def test_presets_of_transformers_return_as_many_detections_as_queries(tmp_path, preset, count):
    """Its RT-DETR has the best pairs of a query and a class, and its DETR one class for each query."""
    queries = {"logits": RNG.normal(0, 1, (count, 3)), "pred_boxes": RNG.uniform(0.2, 0.5, (count, 4))}
    path = write(tmp_path / "any.onnx", queries, image=(1, 3, "h", "w"), name="pixel_values")
    mmort.onnx.adopt(path, tmp_path / "a.onnx", preset=preset)
    assert len(detect(tmp_path / "a.onnx")) == count


def test_a_file_that_divides_images_does_not_fit_a_preset_that_normalizes_them_otherwise(tmp_path):
    path = write(tmp_path / "detr.onnx", {"pred_boxes": np.full((4, 4), 0.3), "logits": np.zeros((4, 3))})
    with_first_nodes(path, oh.make_node("Div", ["images", "255"], ["changed"]))
    with pytest.raises(Question, match="does not say what preprocessing is"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="detr")


@pytest.mark.parametrize("operator", ["Sigmoid", "Softmax"])
@pytest.mark.parametrize("first", [0, 1])
def test_label_0_of_torchvision(tmp_path, operator, first):
    """RetinaNet and FCOS, which have sigmoids, emit it; R-CNNs and SSDs, which have a softmax, leave it out."""
    boxes, labels = corners(grid_boxes(9)), np.arange(9) % 3 + first
    outputs = {"boxes": boxes, "scores": np.linspace(0.9, 0.5, 9), "labels": labels}
    path = write(tmp_path / "tv.onnx", outputs, image=(3, "h", "w"), name="image")
    model = onnx.load(path)
    model.graph.node.append(oh.make_node(operator, ["image"], ["unused"]))
    onnx.save(model, path)
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    shift = 1 if operator == "Softmax" and first == 1 else 0
    np.testing.assert_array_equal(detect(tmp_path / "a.onnx").labels, labels - shift)


def test_keypoint_r_cnn_of_torchvision(tmp_path):
    """Its keypoints and their scores are left out."""
    outputs = {"boxes": corners(grid_boxes(4)), "labels": np.ones(4, np.int64), "scores": np.linspace(0.9, 0.5, 4)}
    outputs |= {"keypoints": np.zeros((4, 17, 3)), "keypoints_scores": np.zeros((4, 17))}
    path = write(tmp_path / "tv.onnx", outputs, image=(3, "h", "w"), name="image")
    assert mmort.onnx.adopt(path, tmp_path / "a.onnx").left_out == ("keypoints", "keypoints_scores")
    model = onnx.load(path)
    for output in model.graph.output:  # torch's exporter often states no sizes
        for size in output.type.tensor_type.shape.dim:
            size.Clear()
    onnx.save(model, path)
    assert mmort.onnx.adopt(path, tmp_path / "b.onnx").left_out == ("keypoints", "keypoints_scores")


def test_keypoints_of_three_dimensions(tmp_path):
    boxes, points = corners(grid_boxes(5)), RNG.uniform(0, 60, (5, 4, 3))
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": np.linspace(0.9, 0.5, 5)[:, None], "k": points})
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "keypoints": "k"}
    layout["preprocessing"] = {"size": [WIDTH, HEIGHT], "keep_ratio": False}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    np.testing.assert_allclose(detect(tmp_path / "a.onnx").keypoints, points, rtol=1e-5)


@pytest.mark.parametrize("count", [2, 4])
def test_the_size_of_detectron2_is_told_by_its_value(tmp_path, count):
    """Two labels have the shape of a height and a width."""
    boxes, scores, labels = corners(grid_boxes(count)), np.linspace(0.9, 0.5, count), np.arange(count)
    outputs = {"1": boxes, "2": np.array([HEIGHT, WIDTH]), "3": scores, "4": labels}
    path = write(tmp_path / "d2.onnx", outputs, image=(3, HEIGHT, WIDTH), name="x")
    with pytest.raises(Question):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")


@pytest.mark.parametrize("names", [2, 4])
@pytest.mark.parametrize(("task", "further"), [("detect", 0), ("obb", 1), ("segment", 8), ("pose", 12)])
def test_names_of_ultralytics_that_do_not_fit_the_columns(tmp_path, names, task, further):
    """Columns of angles, masks or keypoints would be read at another position."""
    rows = np.concatenate([grid_boxes(40), RNG.uniform(0.1, 1, (40, 3 + further))], 1).T
    outputs = {"output0": rows}
    if task == "segment":
        outputs["output1"] = RNG.normal(0, 1, (8, HEIGHT // 4, WIDTH // 4))
    metadata = ultralytics(task=task, names=str(dict(enumerate("abcd"[:names]))), kpt_shape="[4, 3]")
    path = write(tmp_path / "yolo.onnx", outputs, metadata=metadata)
    with pytest.raises(
        ValueError, match=f"for {names} classes and the task {task} must have {4 + names + further} columns"
    ):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")


def test_swapped_outputs_of_ultralytics(tmp_path):
    rows = np.concatenate([grid_boxes(40), RNG.uniform(0.1, 1, (40, 11))], 1).T
    outputs = {"output1": RNG.normal(0, 1, (8, HEIGHT // 4, WIDTH // 4)), "output0": rows}
    path = write(tmp_path / "yolo.onnx", outputs, metadata=ultralytics(task="segment"))
    assert mmort.onnx.adopt(path, tmp_path / "a.onnx").layout.masks == "output0[7:]"


@pytest.mark.parametrize("stated", [True, False])
def test_scores_of_other_rows_than_the_boxes(tmp_path, stated):
    """Of RF-DETR's logits with classes first, as many rows as there are classes would be taken for boxes'."""
    outputs = {"dets": RNG.uniform(0.2, 0.5, (20, 4)), "labels": RNG.normal(0, 2, (4, 20))}
    path = write(tmp_path / "rfdetr.onnx", outputs)
    if not stated:
        model = onnx.load(path)
        model.graph.output[1].type.tensor_type.shape.dim[1].dim_param = "queries"
        onnx.save(model, path)
    with pytest.raises(ValueError, match="must have a row for each box, got rows of boxes 20, scores 4; columns_first"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")


def test_boxes_of_three_columns_are_named(tmp_path):
    """Also where the file states no sizes."""
    path = write(tmp_path / "any.onnx", {"b": np.ones((9, 3)), "s": np.ones((9, 2)) / 2})
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s"}
    layout["preprocessing"] = {"size": [WIDTH, HEIGHT], "keep_ratio": False}
    for _ in range(2):
        with pytest.raises(ValueError, match=r"boxes must be 4 columns, got 'b', which is 3"):
            mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
        model = onnx.load(path)
        for size in model.graph.output[0].type.tensor_type.shape.dim:
            size.dim_param = "?"
        onnx.save(model, path)


def test_an_image_that_the_file_does_not_take_is_named(tmp_path):
    """ONNX Runtime's own error says neither the file nor the sizes."""
    path = write(
        tmp_path / "any.onnx", {"b": corners(grid_boxes(30)), "s": RNG.uniform(0, 1, (30, 2))}, (1, 3, "h", "w")
    )
    model = onnx.load(path)
    model.graph.node.insert(0, oh.make_node("Slice", ["images", "from", "to", "axes/3"], ["part"]))
    for name, value in (("from", [32]), ("to", [64]), ("axes/3", [3])):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    model.graph.node.insert(1, oh.make_node("Conv", ["part", "kernel"], ["unused"]))
    kernel = np.ones((1, 3, 8, 8), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "kernel"))
    model.graph.node[2].input[0] = "images"
    onnx.save(model, path)
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "preprocessing": {}}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    with pytest.raises(ValueError, match=r"a.onnx: ONNX Runtime cannot run it on images of \[1, 3, 2000, 3\]: "):
        mmort.Predictor(tmp_path / "a.onnx")(np.zeros((2000, 3, 3), np.uint8))


def test_categories_are_matched_by_name(tmp_path):
    """MMDetection's labels follow the annotations' order; those of another exporter follow the names in its file."""
    boxes = np.array([[5, 5, 40, 30], [50, 10, 90, 60], [10, 35, 45, 60]], float)
    rows = np.concatenate([boxes, [[0.9], [0.8], [0.7]], [[0], [1], [2]]], 1)
    path = write(tmp_path / "yolo.onnx", {"output0": rows}, metadata=ultralytics(args="{'nms': True}"))
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    write_image(tmp_path / "image.png", np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    ids = {name: number for number, name in enumerate(["owl", "dog", "cat"], 1)}
    objects = [
        {"id": index + 1, "image_id": 1, "category_id": ids[CLASSES[index]], "iscrowd": 0}
        | {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
        for index, (x1, y1, x2, y2) in enumerate(boxes.tolist())
    ]
    annotations = {
        "images": [{"id": 1, "file_name": "image.png", "height": HEIGHT, "width": WIDTH}],
        "categories": [{"id": number, "name": name} for name, number in ids.items()],
        "annotations": objects,
    }
    (tmp_path / "annotations.json").write_text(json.dumps(annotations))
    command = ("test", tmp_path / "a.onnx", "--ann", tmp_path / "annotations.json", "--img-dir", tmp_path)
    code, text, error = run(*command, "--eval", "bbox")
    assert code == 0
    assert "bbox_mAP: 1.0000" in text
    assert "another order" not in error


def write_queries(tmp_path, settings, config=None, **layout):
    """Adopt a file of transformers for these settings, and return the predictor."""
    rows = {"logits": RNG.normal(0, 2, (20, 4)), "pred_boxes": RNG.uniform(0.2, 0.5, (20, 4))}
    path = write(tmp_path / "detr.onnx", rows, image=("n", 3, "h", "w"), name="pixel_values")
    names = {"id2label": {str(i): name for i, name in enumerate(CLASSES)}} | (config or {})
    (tmp_path / "config.json").write_text(json.dumps(names))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout, config=tmp_path, force=True)
    return mmort.Predictor(tmp_path / "a.onnx", score_threshold=0)


@pytest.mark.parametrize(
    ("settings", "image", "expected"),
    [
        ({"image_processor_type": "DetrImageProcessor"}, (480, 640), (800, 1066)),
        ({"feature_extractor_type": "DetrFeatureExtractor", "size": 800, "max_size": 1333}, (480, 640), (800, 1066)),
        ({"feature_extractor_type": "DetrFeatureExtractor", "size": 400, "max_size": 500}, (300, 900), (167, 500)),
        ({"image_processor_type": "YolosImageProcessor"}, (480, 640), (800, 1056)),
        ({"image_processor_type": "YolosImageProcessor", "size": 512, "max_size": 864}, (300, 900), (288, 864)),
        ({"image_processor_type": "RTDetrImageProcessor"}, (480, 640), (640, 640)),
        (
            {"image_processor_type": "DetrImageProcessor", "size": {"max_height": 300, "max_width": 500}},
            (99, 98),
            (300, 296),
        ),
        ({"image_processor_type": "DetrImageProcessor", "do_resize": False}, (99, 98), (99, 98)),
    ],
)
def test_sizes_of_image_processors(tmp_path, settings, image, expected):
    """As transformers 5.24 makes them; a size that is not stated is the processor's."""
    predict = write_queries(tmp_path, settings)
    assert predict.preprocessing(np.zeros((*image, 3), np.uint8)).input.shape[1:] == expected


def test_normalization_of_image_processors(tmp_path):
    """DETR's by default is ImageNet's, and RT-DETR's none."""
    level = np.full((640, 640, 3), 128, np.uint8)
    detr = write_queries(tmp_path, {"image_processor_type": "DetrImageProcessorFast", "image_mean": None})
    expected = (128 / 255 - np.array([0.485, 0.456, 0.406])) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(detr.preprocessing(level).input[:, 0, 0], expected, rtol=1e-5)
    rtdetr = write_queries(tmp_path, {}, {"model_type": "d_fine", "id2label": {str(i): str(i) for i in range(4)}})
    np.testing.assert_allclose(rtdetr.preprocessing(level).input[:, 0, 0], 128 / 255, rtol=1e-6)
    assert rtdetr.preprocessing.size == (640, 640)


def test_the_processor_of_rf_detr_interpolates_levels_from_0_to_1(tmp_path):
    """Without antialiasing, and before they are normalized."""
    image = RNG.integers(0, 256, (90, 60, 3), np.uint8)
    sizes = {"height": 40, "width": 70}
    predict = write_queries(tmp_path, {"image_processor_type": "RfDetrImageProcessor", "size": sizes})
    levels = torch.from_numpy(image[..., ::-1].transpose(2, 0, 1) / np.float32(255))[None]
    resized = torch.nn.functional.interpolate(levels, (40, 70), mode="bilinear", align_corners=False)[0].numpy()
    mean, std = (np.array(values)[:, None, None] for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    np.testing.assert_allclose(predict.preprocessing(image).input, (resized - mean) / std, atol=2e-6)


@pytest.mark.parametrize("model_type", ["lw_detr", "rf_detr"])
def test_processors_of_models_that_name_none(tmp_path, model_type):
    """LW-DETR has that of Deformable DETR, and RF-DETR its own."""
    names = {"id2label": {str(label): str(label) for label in range(4)}}
    predict = write_queries(tmp_path, {}, {"model_type": model_type} | names)
    assert predict.preprocessing.to_float32 == (model_type == "rf_detr")
    expected = 80 if model_type == "lw_detr" else 20  # pairs of 20 queries and 4 classes: the best 100, or 20
    assert len(predict(np.zeros((50, 60, 3), np.uint8))) == expected


@pytest.mark.parametrize(
    ("settings", "config", "message"),
    [
        ({"image_processor_type": "RfDetrImageProcessor", "resample": 3}, {}, "resample must be 2, bilinear, .* got 3"),
        ({"image_processor_type": "RfDetrImageProcessor", "do_rescale": False}, {}, "do_rescale true .* got 2, False"),
        ({"image_processor_type": "RfDetrImageProcessor", "rescale_factor": 1}, {}, "1/255, got 2, True and 1"),
        (
            {"image_processor_type": "Owlv2ImageProcessor"},
            {},
            "image_processor_type must be DetrImageProcessor, .*Owlv2",
        ),
        ({}, {}, "there must be image_processor_type, or size, image_mean, image_std; missing: size, image_mean"),
        (
            {"image_processor_type": "DetrImageProcessor", "size": "big"},
            {},
            "size must have shortest_edge and .* got big",
        ),
        (
            {"image_processor_type": "DetrImageProcessor", "size": {"longest_edge": 9}},
            {},
            "size must have shortest_edge",
        ),
        (
            {"image_processor_type": "DetrImageProcessor", "image_mean": 1},
            {},
            "image_mean must be three numbers, got 1",
        ),
        (
            {"image_processor_type": "DetrImageProcessor", "rescale_factor": 0},
            {},
            "rescale_factor must be a number but 0",
        ),
        ({"image_processor_type": "DetrImageProcessor", "do_center_crop": True}, {}, "do_center_crop must be false"),
        (
            {"image_processor_type": "RTDetrImageProcessor"},
            {"model_type": "rt_detr"},
            "config.json must have 4 classes",
        ),
        (
            {"image_processor_type": "DetrImageProcessor"},
            {"id2label": {"1": "a", "2": "b", "3": "c"}},
            "have the labels 0, 1",
        ),
    ],
)
def test_image_processors_that_are_refused(tmp_path, settings, config, message):
    with pytest.raises(ValueError, match=message):
        write_queries(tmp_path, settings, config)
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize(("others", "is_evidence"), [([0.01, 0.012, 0.011], True), ([0.01, 0.002, 0.005], False)])
def test_a_network_must_be_blind_to_other_ranges(others, is_evidence):
    """Scores that are low, but differ from image to image, are of a network that sees, and finds nothing."""

    def outcome(scores):
        found = [
            mmort.Detections(np.ones((1, 4), np.float32), np.float32([score]), np.array([0]), ("a",), (9, 9))
            for score in scores
        ]
        return evidence.Outcome(found, None, len(found))

    layout = Layout.read({"boxes": "b", "box_format": "xyxy", "scores": "s", "preprocessing": {}})
    verdict = evidence._verdict("yolox", layout, outcome([0.9, 0.7, 0.8]), {"values 0 to 1": outcome(others)}, 0.8)
    assert verdict.contradiction is None
    assert (verdict.evidence is not None) == is_evidence
    assert (evidence.decide([verdict]) is verdict) == is_evidence


def test_rt_detr_for_inputs_of_any_size_needs_no_question(tmp_path):
    """Its file does not state how many columns its output has; a run shows them."""
    rows = np.array([[0.5, 0.5, 0.2, 0.4, 0.9, 0.1, 0.2]])
    path = write(tmp_path / "a.onnx", {"output0": rows}, metadata=ultralytics(description="Ultralytics rtdetr-l model"))
    model = onnx.load(path)
    for size in model.graph.output[0].type.tensor_type.shape.dim:
        size.Clear()
    onnx.save(model, path)
    adoption = mmort.onnx.adopt(path, tmp_path / "b.onnx")
    assert adoption.layout.scores == "output0[4:]"
