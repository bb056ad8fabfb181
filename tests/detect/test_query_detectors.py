"""CornerNet and DETR against MMDetection's results, against other ways to compute the same, and exported."""

import copy
import json
import math
import pathlib
import re

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional

import mmort.onnx
from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.parts.positions import SinePositionalEncoding, inside
from mmort.detect.parts.transformer import Attention
from mmort.onnx.verify.detections import DetectionRow

RECORDED = dict(np.load(pathlib.Path(__file__).parents[1] / "data/query/mmdetection.npz"))

CENTER_PAD = {"type": "RandomCenterCropPad", "test_mode": True, "mean": [0, 0, 0], "std": [1, 1, 1]}
CORNERNET = {
    "model": {
        "type": "CornerNet",
        "backbone": {
            "type": "HourglassNet",
            "downsample_times": 3,
            "num_stacks": 1,
            "stage_channels": [32, 32, 48, 48],
            "stage_blocks": [1, 1, 1, 1],
            "norm_cfg": {"type": "BN", "requires_grad": True},
            "feat_channel": 32,
        },
        "neck": None,
        "bbox_head": {
            "type": "CornerHead",
            "num_classes": 10,
            "in_channels": 32,
            "num_feat_levels": 1,
            "corner_emb_channels": 1,
            "loss_heatmap": {"type": "GaussianFocalLoss"},
        },
        "test_cfg": {
            "corner_topk": 100,
            "local_maximum_kernel": 3,
            "distance_threshold": 0.5,
            "score_thr": 0.05,
            "max_per_img": 100,
            "nms": {"type": "soft_nms", "iou_threshold": 0.5, "method": "gaussian"},
        },
    },
    "test_pipeline": [{**CENTER_PAD, "test_pad_mode": ["logical_or", 31]}],
}

_ATTENTION = {"type": "MultiheadAttention", "embed_dims": 64, "num_heads": 8, "dropout": 0.0}
_FFN = {"type": "FFN", "embed_dims": 64, "feedforward_channels": 128, "num_fcs": 2, "act_cfg": {"type": "ReLU"}}
_BACKBONE = {
    "type": "ResNet",
    "depth": 18,
    "out_indices": (3,),
    "base_channels": 12,
    "stem_channels": 12,
    "strides": (1, 2, 2, 1),
    "dilations": (1, 1, 1, 2),
}
DETR = {
    "model": {
        "type": "DETR",
        "backbone": _BACKBONE,
        "bbox_head": {
            "type": "DETRHead",
            "num_classes": 10,
            "in_channels": 96,
            "num_query": 20,
            "transformer": {
                "type": "Transformer",
                "encoder": {
                    "type": "DetrTransformerEncoder",
                    "num_layers": 2,
                    "transformerlayers": {
                        "type": "BaseTransformerLayer",
                        "attn_cfgs": [_ATTENTION],
                        "feedforward_channels": 128,
                        "operation_order": ("self_attn", "norm", "ffn", "norm"),
                        "ffn_cfgs": _FFN,
                    },
                },
                "decoder": {
                    "type": "DetrTransformerDecoder",
                    "return_intermediate": True,
                    "num_layers": 3,
                    "transformerlayers": {
                        "type": "DetrTransformerDecoderLayer",
                        "attn_cfgs": _ATTENTION,
                        "feedforward_channels": 128,
                        "operation_order": ("self_attn", "norm", "cross_attn", "norm", "ffn", "norm"),
                        "ffn_cfgs": _FFN,
                    },
                },
            },
            "positional_encoding": {"type": "SinePositionalEncoding", "num_feats": 32, "normalize": True},
        },
        "test_cfg": {"max_per_img": 20},
    }
}
DETR_3 = {
    "model": {
        "type": "mmdet.DETR",
        "num_queries": 20,
        "backbone": _BACKBONE,
        "neck": {
            "type": "ChannelMapper",
            "in_channels": [96],
            "kernel_size": 1,
            "out_channels": 64,
            "act_cfg": None,
            "norm_cfg": None,
            "num_outs": 1,
        },
        "encoder": {"num_layers": 2, "layer_cfg": {"self_attn_cfg": _ATTENTION, "ffn_cfg": _FFN}},
        "decoder": {
            "num_layers": 3,
            "layer_cfg": {"self_attn_cfg": _ATTENTION, "cross_attn_cfg": _ATTENTION, "ffn_cfg": _FFN},
            "return_intermediate": True,
        },
        "positional_encoding": {"num_feats": 32, "normalize": True},
        "bbox_head": {"type": "DETRHead", "num_classes": 10, "embed_dims": 64},
        "test_cfg": {"max_per_img": 20},
    }
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random_detector(config):
    """Return a detector with random weights, and statistics of normalization that keep its maps lively."""
    torch.manual_seed(0)
    detector = build(config).train()
    for module in detector.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1
    detector.raw(torch.randn(2, 3, 95, 127))
    return detector.eval()


def lively_cornernet(config):
    """Return one that accepts any pair of corners, and finds all classes about equally often."""
    detector = random_detector(config)
    detector.distance_threshold = math.inf
    for branch in (detector.bbox_head.tl_heat, detector.bbox_head.br_heat):
        with torch.no_grad():
            heat = branch[-1](torch.randn(2, 32, 24, 32))
        branch[-1][-1].conv.bias -= heat.mean((0, 2, 3))
    return detector


@pytest.fixture(scope="module")
def cornernet():
    return lively_cornernet(CORNERNET)


@pytest.fixture(scope="module")
def detr():
    return random_detector(DETR)


def test_weights_have_mmdetections_names_and_shapes():
    ours = [f"{key} {list(value.shape)}" for key, value in build(CORNERNET).state_dict().items()]
    assert sorted(ours) == sorted(RECORDED["cornernet.weights"])


@pytest.mark.parametrize("config", [DETR, DETR_3])
def test_weights_of_mmdetection_2_fit(config):
    """Its names are others: the network had the transformer in its head."""
    names = [line.split(" ", 1) for line in RECORDED["detr.weights"].tolist()]
    load_weights(build(config), {key: torch.zeros(json.loads(shape)) for key, shape in names})


def test_cornernet_decodes_maps_as_mmdetection_does():
    cornernet = build(CORNERNET)
    names = ("tl_heat", "br_heat", "tl_emb", "br_emb", "tl_off", "br_off")
    maps = tuple(torch.from_numpy(RECORDED[f"cornernet.2.{name}"]) for name in names)
    image, canvas = torch.full((1, 1, 4), 128.0), torch.full((1, 1, 4), 159.0)
    assert (cornernet.canvas(image) == canvas).all()
    dets, labels = (output[0].numpy() for output in cornernet.detect(maps, canvas, image, canvas))
    wanted, wanted_labels = RECORDED["cornernet.2.dets"], RECORDED["cornernet.2.labels"]
    dets[:, :4] -= 15  # MMDetection's boxes begin at the border
    order, wanted_order = (np.lexsort((rows[:, 0], -rows[:, 4].round(5))) for rows in (dets, wanted))
    np.testing.assert_allclose(dets[order], wanted[wanted_order], atol=1e-4)
    np.testing.assert_array_equal(labels[order], wanted_labels[wanted_order])


@pytest.mark.parametrize("image", [0, 1])
def test_detr_decodes_outputs_as_mmdetection_does(detr, image, monkeypatch):
    raw = tuple(torch.from_numpy(RECORDED[f"detr.{image}.{name}"]) for name in ("logits", "boxes"))
    monkeypatch.setattr(detr, "_raw", lambda input, limits: raw)
    shape = [(149, 256), (208, 231)][image]
    dets, labels = detr(torch.zeros(1, 3, 256, 256), torch.tensor([shape]))
    order = np.argsort(-RECORDED[f"detr.{image}.dets"][:, 4], kind="stable")  # MMDetection's are class by class
    np.testing.assert_allclose(dets[0], RECORDED[f"detr.{image}.dets"][order], rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(labels[0], RECORDED[f"detr.{image}.labels"][order])


def test_detr_boxes_end_with_the_image(detr, monkeypatch):
    boxes = torch.tensor([[[0.1, 0.2, 0.4, 0.2], [0.9, 0.8, 0.1, 0.8]]]).repeat(1, 10, 1)
    monkeypatch.setattr(detr, "_raw", lambda input, limits: (torch.randn(1, 20, 11), boxes))
    dets, _ = detr(torch.zeros(1, 3, 120, 230), torch.tensor([[100, 200]]))
    result = {tuple(box.tolist()) for box in dets[0, :, :4].round()}
    assert result == {(0, 10, 60, 30), (170, 40, 190, 100)}


def on_canvas(image, shape):
    """Put an image [3, h, w] where CornerNet's test pipeline does, and that canvas into the corner of [3, H, W]."""
    height, width = image.shape[1:]
    result = torch.zeros(3, *shape)
    top, left = (height | 31) // 2 - height // 2, (width | 31) // 2 - width // 2
    result[:, top : top + height, left : left + width] = image
    return result, (left, top)


def test_cornernet_boxes_begin_at_the_image(cornernet):
    image, (left, top) = on_canvas(torch.randn(3, 70, 100), (95, 127))
    dets, labels = cornernet(image[None], torch.tensor([[70, 100]]))
    boxes = dets[labels >= 0][:, :4]
    assert boxes[:, :2].amin(0).tolist() == [left, top]  # corners outside are moved there
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    dets, labels = cornernet(image[None])
    assert dets[labels >= 0][:, :2].min() < min(left, top)


def test_cornernet_flip_of_a_mirror_image_is_the_mirror_image(cornernet):
    """With the same border on both sides.  The canvases are smaller than the input."""
    cornernet = copy.deepcopy(cornernet)
    cornernet.flip_test = True
    image = torch.randn(3, 63, 95)
    batch = torch.stack([on_canvas(pixels, (95, 159))[0] for pixels in (image, image.flip(2))])
    (first, second), labels = cornernet(batch, torch.tensor([[63, 95]] * 2))
    assert (labels >= 0).sum() > 50
    assert (labels[0] == labels[1]).all()
    mirrored = torch.stack([95 - first[:, 2], first[:, 1], 95 - first[:, 0], first[:, 3], first[:, 4]], 1)
    torch.testing.assert_close(second, mirrored, rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["cornernet", "detr"])
def test_batches_give_what_their_images_give(name, request):
    """In the same padding: the backbones see it."""
    detector = request.getfixturevalue(name)
    batch, shapes = torch.randn(3, 3, 95, 127), torch.tensor([[95, 127], [63, 100], [80, 50]])
    for index, (height, width) in enumerate(shapes | 31 if name == "cornernet" else shapes):
        batch[index, :, height:], batch[index, :, :, width:] = 0, 0
    together = detector(batch, shapes)
    for index in range(3):
        dets, labels = detector(batch[index : index + 1], shapes[index : index + 1])
        assert (labels >= 0).sum() >= 10
        torch.testing.assert_close(together[0][index], dets[0], rtol=1e-4, atol=1e-3)
        assert (together[1][index] == labels[0]).all()


def test_detr_of_isolated_images():
    """Images of a batch give what they give alone, without any padding."""
    detector = random_detector(DETR)
    shapes = torch.tensor([[95, 127], [63, 100], [80, 50]])
    batch = torch.zeros(3, 3, 95, 127)
    images = [torch.randn(1, 3, *shape) for shape in shapes.tolist()]
    for row, image in zip(batch, images, strict=True):
        row[:, : image.shape[2], : image.shape[3]] = image[0]
    before = detector(batch, shapes)
    alone = [detector(image) for image in images]
    detector.isolate_images()
    after = detector(batch, shapes)
    for index, (dets, labels) in enumerate(alone):
        torch.testing.assert_close(after[0][index], dets[0], rtol=1e-4, atol=1e-3)
        assert (after[1][index] == labels[0]).all()
    torch.testing.assert_close(after[0][0], before[0][0], rtol=1e-4, atol=1e-3)  # without padding
    assert (after[0][1] - before[0][1]).abs().max() > 0.1


def test_detr_ignores_padding():
    """Only the locations of the image count in the transformer."""
    detector = random_detector(DETR)
    features = torch.randn(1, 96, 5, 7)
    rows, columns = torch.arange(5)[None] < 4, torch.arange(7)[None] < 3

    def decoded(map, rows, columns):
        (projected,) = detector.neck([map])
        return detector.decode(projected.flatten(2).transpose(1, 2), rows, columns)

    padded = decoded(features, rows, columns)
    alone = decoded(features[:, :, :4, :3], rows[:, :4], columns[:, :3])
    filled = decoded(torch.where((rows[:, :, None] & columns[:, None])[:, None], features, 9.0), rows, columns)
    for output, output_alone, output_filled in zip(padded, alone, filled, strict=True):
        torch.testing.assert_close(output, output_alone, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(output, output_filled, rtol=0, atol=0)


def test_attention_is_torchs():
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(48, 6, batch_first=True).eval()
    ours = Attention(48, 6)
    ours.load_state_dict(theirs.state_dict())
    query, key, value = torch.randn(2, 5, 48), torch.randn(2, 9, 48), torch.randn(2, 9, 48)
    padding = torch.rand(2, 9) < 0.5
    padding[:, 0] = False
    for mask in (None, padding):
        expected, _ = theirs(query, key, value, key_padding_mask=mask)
        torch.testing.assert_close(ours(query, key, value, mask), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("normalize", [True, False])
def test_positions_are_those_of_a_padding_mask(normalize):
    """Interpolated to the nearest, and counted by cumsum, as MMDetection does it."""
    encoding = SinePositionalEncoding(SinePositionalEncoding.Entries(num_feats=8, normalize=normalize))
    random = np.random.default_rng(0)
    for _ in range(200):
        height, width = (int(size) for size in random.integers(1, 1400, 2))
        cells = math.ceil(height / 32), math.ceil(width / 32)
        limit = [int(random.integers(1, height + 1)), int(random.integers(1, width + 1))]
        mask = torch.ones(1, 1, height, width)
        mask[..., : limit[0], : limit[1]] = 0
        free = functional.interpolate(mask, size=cells)[0, 0] == 0
        rows = inside(height, cells[0], torch.tensor([[limit[0]]]))
        columns = inside(width, cells[1], torch.tensor([[limit[1]]]))
        assert torch.equal(rows[0][:, None] & columns[0], free), (height, width, limit)
        waves = encoding(rows, columns).reshape(*cells, 16)
        y, x = (free.cumsum(axis, dtype=torch.float32) for axis in (0, 1))
        if normalize:
            y, x = y / (y[-1:] + 1e-6) * 2 * math.pi, x / (x[:, -1:] + 1e-6) * 2 * math.pi
        for case, (axis, index) in enumerate([(y, 0), (y, 7), (x, 2), (x, 5)]):
            angle = axis / 10000 ** ((index // 2) / 4)
            expected = angle.cos() if index % 2 else angle.sin()
            torch.testing.assert_close(waves[..., index + 8 * (case > 1)], expected, rtol=1e-4, atol=1e-5)


def test_a_file_has_torchs_positions_of_cells_beside_the_image(tmp_path):
    """With an offset they are waves of 3 million radians, of which rounding is a good part of a turn."""
    entries = SinePositionalEncoding.Entries(num_feats=64, normalize=True, offset=-0.5)
    encoding = SinePositionalEncoding(entries).eval()
    rows, columns = torch.arange(8)[None] < 6, torch.arange(8)[None] < 5
    file = tmp_path / "positions.onnx"
    mmort.onnx.export(encoding, (rows, columns), file, verify=False)
    session = onnxruntime.InferenceSession(file)
    feeds = {input.name: value.numpy() for input, value in zip(session.get_inputs(), (rows, columns), strict=True)}
    (positions,) = session.run(None, feeds)
    np.testing.assert_allclose(positions, encoding(rows, columns), rtol=0, atol=1e-6)


def test_detr_of_mmdetection_3_is_the_same():
    """Its configs and keys differ, its network does not."""
    first, second = random_detector(DETR), build(DETR_3)
    renamed = {}
    for key, value in first.state_dict().items():
        key = re.sub(r"^((?:en|de)coder\.)", r"bbox_head.transformer.\1", key).replace(".ffn.", ".ffns.0.")
        key = key.replace(".self_attn.", ".attentions.0.").replace(".cross_attn.", ".attentions.1.")
        key = re.sub("^query_embedding", "bbox_head.query_embedding", key)
        renamed[key.replace("neck.convs.0.conv.", "bbox_head.input_proj.")] = value
    assert not any(key.startswith(("encoder", "decoder", "neck", "query")) for key in renamed)
    load_weights(second, renamed)
    image = torch.randn(1, 3, 70, 90)
    for output, output_3 in zip(first(image), second(image), strict=True):
        assert torch.equal(output, output_3)


@pytest.mark.parametrize("step", [{"test_pad_mode": ["size_divisor", 32]}, {"test_pad_mode": ["logical_or", 100]}])
def test_canvases_of_another_kind_are_refused(step):
    pipeline = [{"type": "MultiScaleFlipAug", "transforms": [{**CENTER_PAD, **step}]}]
    with pytest.raises(ValueError, match=r"RandomCenterCropPad (must have|is supported in) test"):
        build({**CORNERNET, "data": {"test": {"pipeline": pipeline}}})


_LAYERS = "bbox_head.transformer.encoder.transformerlayers"


def changed(config, path, value):
    config = copy.deepcopy(config)
    *parents, last = path.split(".")
    part = config["model"]
    for name in parents:
        part = part[name]
    part[last] = value
    return config


@pytest.mark.parametrize(
    ("config", "path", "value", "match"),
    [
        (CORNERNET, "bbox_head.corner_emb_channels", 2, "corner_emb_channels must be 1, got 2"),
        (CORNERNET, "backbone.downsample_times", 4, "more than downsample_times = 4 entries, got 4 and 4"),
        (CORNERNET, "bbox_head.centripetal", True, "centripetal"),
        (DETR, "bbox_head.num_reg_fcs", 1, "num_reg_fcs of bbox_head must be an integer of at least 2, got 1"),
        (DETR, "bbox_head.loss_cls", {"type": "SeesawLoss"}, "loss_cls 'SeesawLoss' is not supported"),
        (DETR, f"{_LAYERS}.norm_cfg", {"type": "BN"}, "encoder.layer_cfg.norm_cfg 'BN' is not supported"),
        (
            DETR,
            f"{_LAYERS}.ffn_cfgs",
            {"num_fcs": 1},
            "num_fcs of bbox_head.transformer.encoder.layer_cfg.ffn_cfg",
        ),
        (
            DETR,
            f"{_LAYERS}.attn_cfgs",
            [_ATTENTION] * 2,
            "attn_cfgs of bbox_head.transformer.encoder.layer_cfg",
        ),
        (
            DETR,
            f"{_LAYERS}.operation_order",
            ("norm", "ffn"),
            "operation_order of bbox_head.transformer.encoder",
        ),
        (DETR, f"{_LAYERS}.batch_first", True, "batch_first of bbox_head.transformer.encoder.layer_cfg must"),
        (DETR, "bbox_head.transformer.num_levels", 4, "bbox_head.transformer with num_levels is not supported"),
        (DETR, "bbox_head.positional_encoding.type", "LearnedPositionalEncoding", "LearnedPositionalEncoding"),
        (DETR_3, "type", "DINO", "model 'DINO' is not supported; supported: DETR"),
        (DETR_3, "encoder.layer_cfg.self_attn_cfg.num_heads", 7, "embed_dims of encoder.layer_cfg.self_attn_cfg must"),
        (DETR_3, "decoder.layer_cfg.cross_attn_cfg", _ATTENTION | {"embed_dims": 8}, "embed_dims of decoder.layer_cfg"),
        (DETR_3, "positional_encoding.num_feats", 8, "2 * num_feats of positional_encoding must be embed_dims of enc"),
    ],
)
def test_unsupported_entries_are_named(config, path, value, match):
    with pytest.raises(ValueError, match=re.escape(match)):
        build(changed(config, path, value))


def check_export_of_a_flip_test(path, **options):
    """Export a CornerNet as small as its type allows, which compares with torch at other sizes and batches too."""
    sizes = {"downsample_times": 1, "stage_channels": [32, 32], "stage_blocks": [1, 1]}
    detector = lively_cornernet(changed(CORNERNET, "backbone", CORNERNET["model"]["backbone"] | sizes))
    detector.flip_test = True
    report = mmort.onnx.export(
        detector,
        (torch.randn(2, 3, 47, 63), torch.tensor([[47, 63], [30, 40]])),
        path,
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"}, {0: "batch"}),
        output_names=["dets", "labels"],
        **options,
    )
    rows = [row for row in report.rows if isinstance(row, DetectionRow)]
    if options:  # by the older exporter, whose files are compared by their detections
        assert [row.image for row in rows] == [0, 1, 0, 1, 2, 0]  # the example, more images, fewer
        assert all(row.matched == row.detections >= 10 for row in rows), str(report)
    else:
        compared = [row.compared for row in report.rows]
        assert compared.count("choices and outputs") == 3
        assert report.ok


def test_a_flip_test_is_exported(tmp_path):
    """By the older exporter, which takes a tenth of the time; tests/exports does it by torch.export."""
    check_export_of_a_flip_test(tmp_path / "detector.onnx", exporter="legacy", opset_version=17)
