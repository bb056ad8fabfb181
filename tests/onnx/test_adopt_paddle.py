"""Files of PaddleDetection, with the config that its exporter writes beside them and without."""

import cv2
import numpy as np
import onnx
import onnx.helper as oh
import pytest
import yaml

import mmort
import mmort.onnx
from mmort.onnx.adopt import Question
from tests.cli.running import run
from tests.onnx.foreign import CLASSES, HEIGHT, WIDTH, add_input, assert_detects, corners, detect, suppressed, write

RNG = np.random.default_rng(17)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
RESIZE = {"type": "Resize", "interp": 2, "keep_ratio": False, "target_size": [HEIGHT, WIDTH]}
NORMALIZE = {"type": "NormalizeImage", "is_scale": True, "mean": MEAN, "std": STD}
PERMUTE = {"type": "Permute"}
PAD = {"type": "PadStride", "stride": 32}
STEPS = [RESIZE, NORMALIZE, PERMUTE]


def write_config(folder, steps=STEPS, name="infer_cfg.yml", **entries):
    """Write a config as PaddleDetection does, and return its path."""
    common = {"mode": "paddle", "draw_threshold": 0.5, "metric": "COCO", "use_dynamic_shape": False, "arch": "YOLO"}
    values = common | {"min_subgraph_size": 3, "Preprocess": steps, "label_list": CLASSES} | entries
    (folder / name).write_text(yaml.safe_dump(values))
    return folder / name


def random_boxes(count):
    """Return boxes cx, cy, w, h in pixels."""
    return np.concatenate([RNG.uniform(20, 44, (count, 2)), RNG.uniform(15, 30, (count, 2))], 1)


def write_ppyoloe(path, gain=0.0):
    """Write a file for two images with PaddleDetection's post-processing; return its rows, 3 of the first image."""
    counts, rows = np.array([3, 5]), np.zeros((8, 6))
    rows[:, 0], rows[:, 1] = RNG.integers(0, 3, 8), RNG.uniform(0.2, 0.9, 8)
    rows[:, 2:] = corners(random_boxes(8))
    write(path, {"rows": rows, "counts": counts}, (2, 3, HEIGHT, WIDTH), name="image", gain=gain)
    model = onnx.load(path)
    for output in model.graph.output:  # of the batch, not of each image
        del output.type.tensor_type.shape.dim[0]
    for node, shape in (("rows", [8, 6]), ("counts", [2])):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape), f"{node}/flat"))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), f"{node}/first"))
        (cast,) = (other for other in model.graph.node if node in other.output)
        cast.output[:] = [f"{node}/batch"]
        model.graph.node.append(oh.make_node("Gather", [f"{node}/batch", f"{node}/first"], [f"{node}/one"]))
        model.graph.node.append(oh.make_node("Reshape", [f"{node}/one", f"{node}/flat"], [node]))
    onnx.save(model, path)
    add_input(path, "scale_factor", [2, 2])
    return rows


@pytest.mark.parametrize("states_config", [False, True])
def test_post_processing(tmp_path, states_config):
    """Class, score and corners in the original image, and how many rows each image has."""
    rows = write_ppyoloe(tmp_path / "ppyoloe.onnx")
    said = {"config": write_config(tmp_path)} if states_config else {"preset": "ppyoloe"}
    adoption = mmort.onnx.adopt(tmp_path / "ppyoloe.onnx", tmp_path / "a.onnx", **said)
    assert adoption.layout.classes == (CLASSES if states_config else None)
    images = [np.zeros((200, 80, 3), np.uint8), np.zeros((31, 400, 3), np.uint8)]
    first, second = mmort.Predictor(tmp_path / "a.onnx", score_threshold=0).predict(images, 2)
    for detections, part in ((first, rows[:3]), (second, rows[3:])):
        assert_detects(detections, part[:, 2:], part[:, 1], part[:, 0])


def prepared(image, steps):
    """Return the input that PaddleDetection's steps make of an image, in float64 after resizing."""
    values = image[..., ::-1]
    for step in steps:
        if step["type"] == "Resize":
            height, width = np.broadcast_to(step["target_size"], 2)
            values = cv2.resize(
                np.ascontiguousarray(values), (int(width), int(height)), interpolation=step.get("interp", 1)
            )
        elif step["type"] == "NormalizeImage":
            values = values.astype(np.float32) / (255 if step.get("is_scale", True) else 1)
            if step.get("norm_type") != "none":
                values = ((values - np.array(step["mean"])) / np.array(step["std"])).astype(np.float32)
        elif step["type"] == "Permute":
            values = values.transpose(2, 0, 1)
        else:
            further = [-size % step["stride"] for size in values.shape[1:]]
            values = np.pad(values, [(0, 0), *((0, size) for size in further)])
    return values


@pytest.mark.parametrize(
    "steps",
    [
        STEPS,
        [RESIZE | {"interp": 1, "target_size": 64}, NORMALIZE | {"norm_type": "none"}, PERMUTE],
        [{name: value for name, value in RESIZE.items() if name != "interp"}, NORMALIZE | {"is_scale": False}, PERMUTE],
        [NORMALIZE, RESIZE, PERMUTE],
        [
            RESIZE | {"target_size": [60, 90]},
            NORMALIZE,
            PERMUTE | {"to_bgr": False},
            {"type": "PadStride", "stride": 32},
        ],
    ],
)
def test_inputs_are_those_of_the_configs_steps(tmp_path, steps):
    """Resized or normalized first, by OpenCV's numbers of interpolations, and padded below and on the right."""
    write_ppyoloe(tmp_path / "fixed.onnx")
    model = onnx.load(tmp_path / "fixed.onnx")
    shape = model.graph.input[0].type.tensor_type.shape
    shape.dim[2].dim_param, shape.dim[3].dim_param = "h", "w"
    onnx.save(model, tmp_path / "any.onnx")
    mmort.onnx.adopt(tmp_path / "any.onnx", tmp_path / "a.onnx", config=write_config(tmp_path, steps))
    image = RNG.integers(0, 256, (83, 150, 3), np.uint8)
    got = mmort.Predictor(tmp_path / "a.onnx").preprocessing(image).input
    np.testing.assert_allclose(got, prepared(image, steps), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("steps", "entries", "message"),
    [
        ([{"type": "LetterBoxResize", "target_size": [64, 96]}], {}, "Resize, NormalizeImage, .* got LetterBoxResize"),
        ([RESIZE | {"keep_ratio": True}, PERMUTE], {}, "keep_ratio of Resize in .* must be False, got True"),
        ([{"type": "Resize", "target_size": 64}], {}, "Resize in .* must have keep_ratio=False"),
        ([RESIZE | {"interp": 4}], {}, "interp of Resize in .* must be 1, bilinear, or 2, bicubic, got 4"),
        ([RESIZE | {"target_size": [64]}], {}, r"target_size of Resize .* got \[64\]"),
        ([RESIZE | {"trainable": 1}], {}, "Resize in .* with trainable is not supported"),
        ([NORMALIZE | {"mean": [0.5]}], {}, "mean and std of NormalizeImage .* three numbers each"),
        ([NORMALIZE | {"norm_type": "max"}], {}, "norm_type of NormalizeImage .* mean_std or none, got 'max'"),
        ([RESIZE, PERMUTE, NORMALIZE], {}, "each step once, in the order Resize, .* got Resize, Permute, Norm"),
        ([RESIZE, RESIZE], {}, "each step once"),
        ([PERMUTE | {"to_bgr": True}], {}, "to_bgr of Permute in .* must be False, got True"),
        (["Resize"], {}, "Resize in .* must be a dict, got str"),
    ],
)
def test_steps_that_are_refused(tmp_path, steps, entries, message):
    """Each is named, with what may state it instead."""
    write_ppyoloe(tmp_path / "p.onnx")
    config = write_config(tmp_path, steps, **entries)
    with pytest.raises(ValueError, match=f"{message}.*; instead of --config, --set preprocessing.NAME=VALUE may state"):
        mmort.onnx.adopt(tmp_path / "p.onnx", tmp_path / "a.onnx", config=config)
    assert not (tmp_path / "a.onnx").exists()


def test_configs_that_are_none(tmp_path):
    write_ppyoloe(tmp_path / "p.onnx")
    config = tmp_path / "infer_cfg.yml"
    for text, message in (
        ("Preprocess: {", "infer_cfg.yml is not YAML in UTF-8"),
        ("[1]", "must have the list Preprocess"),
        ("Preprocess: []\nlabel_list: cat", "label_list of .* must be a list of names, got cat"),
    ):
        config.write_text(text)
        with pytest.raises(ValueError, match=message):
            mmort.onnx.adopt(tmp_path / "p.onnx", tmp_path / "a.onnx", config=config)
    config = write_config(tmp_path)
    with pytest.raises(ValueError, match="preset and config exclude each other"):
        mmort.onnx.adopt(tmp_path / "p.onnx", tmp_path / "a.onnx", config=config, preset="ppyoloe")


@pytest.mark.parametrize("name", ["infer_cfg.yml", "inference.yml"])
def test_a_config_is_found_in_its_folder(tmp_path, name):
    write_ppyoloe(tmp_path / "p.onnx")
    write_config(tmp_path, name=name)
    assert mmort.onnx.adopt(tmp_path / "p.onnx", tmp_path / "a.onnx", config=tmp_path).layout.classes == CLASSES


def test_a_folder_with_configs_of_two_libraries(tmp_path):
    """The outputs say which of them is the file's."""
    queries = {"logits": RNG.normal(0, 1, (9, 4)), "pred_boxes": RNG.uniform(0.2, 0.5, (9, 4))}
    path = write(tmp_path / "any.onnx", queries, image=(1, 3, HEIGHT, WIDTH), name="pixel_values")
    write_config(tmp_path)
    with pytest.raises(Question, match="does not say what boxes, box_format"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path / "infer_cfg.yml")
    (tmp_path / "config.json").write_text('{"id2label": {"0": "a", "1": "b", "2": "c"}, "model_type": "detr"}')
    settings = '{"image_processor_type": "DetrImageProcessor", "size": {"height": 64, "width": 96}}'
    (tmp_path / "preprocessor_config.json").write_text(settings)
    assert mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path).exporter == "transformers"
    write_ppyoloe(tmp_path / "p.onnx")
    assert mmort.onnx.adopt(tmp_path / "p.onnx", tmp_path / "b.onnx", config=tmp_path).exporter == "PaddleDetection"


def test_a_question_names_the_config(tmp_path):
    """All presets of PaddleDetection fit, and the config says which one; nothing else is asked for."""
    write_ppyoloe(tmp_path / "p.onnx", gain=0.02)
    code, _, error = run("adopt", tmp_path / "p.onnx", "--output", tmp_path / "a.onnx")
    assert code == 2
    first, *lines = error.splitlines()
    assert "a file of PaddleDetection does not say its preprocessing; pass --config infer_cfg.yml, which its" in first
    assert [line.split()[1] for line in lines if line.startswith("  --preset ")] == ["ppyoloe", "ppyoloe-plus"]


def test_outputs_that_are_not_known_are_asked_for(tmp_path):
    """What the config says is read, and the rest may be stated: a file that was exported without suppression."""
    boxes, scores = corners(random_boxes(9)), RNG.uniform(0.1, 1, (9, 3))
    path = write(tmp_path / "p.onnx", {"b": boxes, "s": scores}, image=(1, 3, HEIGHT, WIDTH))
    write_config(tmp_path)
    with pytest.raises(Question, match=r"does not say what boxes, box_format .* are"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", config=tmp_path)
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s"}
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", layout, config=tmp_path)
    assert (adoption.exporter, adoption.layout.classes) == ("PaddleDetection", CLASSES)
    assert_detects(detect(tmp_path / "a.onnx"), boxes, scores.max(1), scores.argmax(1))


@pytest.mark.parametrize(("form", "opset"), [("RapidLayout", 11), ("RapidLayout", 17), ("config", 17), ("preset", 17)])
def test_picodet(tmp_path, form, opset):
    """Scores and distributions of distances on four grids, the last of which do not divide the input.

    RapidLayout resizes images bilinearly with blue first, and PaddleDetection by cubes with red first.
    """
    outputs, boxes = {}, []
    for stride in (8, 16, 32, 64):
        rows, columns = -(-HEIGHT // stride), -(-WIDTH // stride)
        logits = RNG.normal(0, 2, (rows * columns, 4, 8))
        outputs[f"scores.{stride}"] = RNG.uniform(0, 1, (rows * columns, 3))
        outputs[f"distances.{stride}"] = logits.reshape(-1, 32)
        probabilities = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
        left, top, right, bottom = (probabilities @ np.arange(8)).T
        y, x = (index.ravel() + 0.5 for index in np.indices((rows, columns)))
        boxes.append(stride * np.stack([x - left, y - top, x + right, y + bottom], 1))
    names = sorted(outputs, key=lambda name: "distances" in name)
    metadata = {"character": "\n".join(CLASSES)} if form == "RapidLayout" else {}
    path = write(tmp_path / "p.onnx", {name: outputs[name] for name in names}, (1, 3, HEIGHT, WIDTH), metadata, opset)
    threshold, score_threshold, said = 0.6, 0.025, {}
    if form == "preset":
        said["preset"] = "picodet"
    elif form == "config":
        suppression = {"name": "MultiClassNMS", "nms_threshold": 0.5, "nms_top_k": 1000, "score_threshold": 0.3}
        said["config"] = write_config(tmp_path, arch="PicoDet", NMS=suppression | {"keep_top_k": 100})
        threshold, score_threshold = 0.5, 0.3
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", {"max_detections": 1000}, **said)
    assert adoption.left_out == ()
    assert adoption.layout.classes == (None if form == "preset" else CLASSES)
    prepare = adoption.layout.prepare
    expected_steps = (False, "bilinear") if form == "RapidLayout" else (True, "bicubic")
    assert (prepare.to_rgb, prepare.interpolation) == expected_steps
    scores = np.concatenate([outputs[name] for name in names[:4]])
    index, labels = (values.ravel() for values in np.indices(scores.shape))
    corner = np.concatenate(boxes)[index]
    kept = suppressed(corner, scores.ravel(), labels, threshold)
    kept = kept[scores.ravel()[kept] > score_threshold]
    expected = np.clip(corner, 0, [WIDTH, HEIGHT] * 2)
    assert len(set(index[kept])) < len(kept) < 1000  # a box may have several classes
    assert_detects(detect(tmp_path / "a.onnx"), expected[kept], scores.ravel()[kept], labels[kept])


def test_the_interpolation_of_picodet_is_asked_for(tmp_path):
    """Without RapidLayout's metadata, maps of PicoDet do not say how images become the input."""
    outputs = {}
    for kind, columns in (("scores", 3), ("distances", 32)):
        for stride in (8, 16, 32, 64):
            outputs[f"{kind}.{stride}"] = RNG.uniform(0, 1, (-(-HEIGHT // stride) * -(-WIDTH // stride), columns))
    path = write(tmp_path / "p.onnx", outputs, (1, 3, HEIGHT, WIDTH), gain=0.02)
    with pytest.raises(Question, match="a file of PaddleDetection does not say its preprocessing; pass --config"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")
