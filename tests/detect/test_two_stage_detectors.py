"""Two-stage detectors: MMDetection's results for a trained one, and the parts of the others against loops."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import mmort
from mmort.detect import build
from mmort.detect.checkpoint import load_checkpoint, load_weights
from mmort.detect.entries import read_entries
from mmort.detect.families.two_stage.point_rend import PointExtractor
from mmort.detect.parts.boxes import image_limits, regions
from mmort.predict import paste_masks

DATA = Path(__file__).parents[1] / "data" / "detect"
CONFIG = json.loads((DATA / "mask_rcnn.json").read_text())
FAMILIES = ("Faster R-CNN", "Mask R-CNN", "Cascade R-CNN", "Cascade Mask R-CNN", "PointRend")


def config_of(family):
    """Return the small Mask R-CNN's config, made into another family's."""
    config = copy.deepcopy(CONFIG)
    head = config["model"]["roi_head"]
    if family in ("Faster R-CNN", "Cascade R-CNN"):
        del head["mask_head"], head["mask_roi_extractor"]
    if family.startswith("Cascade"):
        stds = ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])
        coders = [{"type": "DeltaXYWHBBoxCoder", "target_means": [0.0] * 4, "target_stds": std} for std in stds]
        box_head = {**head["bbox_head"], "reg_class_agnostic": True}
        head |= {"type": "CascadeRoIHead", "num_stages": 3, "stage_loss_weights": [1, 0.5, 0.25]}
        head["bbox_head"] = [{**box_head, "bbox_coder": coder} for coder in coders]
    if family == "PointRend":
        head["type"] = "PointRendRoIHead"
        head["mask_roi_extractor"] = {
            "type": "GenericRoIExtractor",
            "aggregation": "concat",
            "roi_layer": {"type": "SimpleRoIAlign", "output_size": 14},
            "out_channels": 32,
            "featmap_strides": [4],
        }
        sizes = {"in_channels": 32, "num_classes": 10}
        head["mask_head"] = {"type": "CoarseMaskHead", **sizes, "conv_out_channels": 32, "fc_out_channels": 64}
        head["point_head"] = {"type": "MaskPointHead", **sizes, "num_fcs": 3, "fc_channels": 32}
        config["model"]["test_cfg"]["rcnn"] |= {
            "subdivision_steps": 5,
            "subdivision_num_points": 784,
            "scale_factor": 2,
        }
    return config


def detector_of(family, seed=1):
    """Return a detector with random weights whose scores vary enough for detections."""
    torch.manual_seed(seed)
    detector = build(config_of(family))
    heads = detector.roi_head.bbox_head
    for head in heads if isinstance(heads, torch.nn.ModuleList) else [heads]:
        head.fc_cls.weight *= 20
    return detector


@pytest.fixture(scope="session")
def mask_rcnn():
    detector = build(CONFIG)
    load_weights(detector, load_checkpoint(DATA / "mask_rcnn.pth")[0])
    return detector


@pytest.fixture(scope="session")
def recorded():
    with np.load(DATA / "mask_rcnn.npz") as file:
        return {key: file[key] for key in file.files}


def batch_of(recorded, indices, height=160, width=224):
    """Return images as the network takes them, in one batch, and their sizes."""
    batch = torch.zeros(len(indices), 3, height, width)
    shapes = []
    for row, index in zip(batch, indices, strict=True):
        image = (recorded[f"image{index}"].astype(np.float32) - recorded["mean"]) / recorded["std"]
        row[:, : image.shape[0], : image.shape[1]] = torch.from_numpy(image).permute(2, 0, 1)
        shapes.append(image.shape[:2])
    return batch, torch.tensor(shapes)


def found(outputs, index=0):
    """Return the detections in one image of a batch, without unused rows."""
    used = outputs[1][index] >= 0
    assert not any(output[index][~used].any() for output in (outputs[0], *outputs[2:]))
    return [output[index][used].numpy() for output in outputs]


@pytest.mark.parametrize("index", range(3))
def test_mask_rcnn_gives_mmdetections_results(mask_rcnn, recorded, index):
    sides = [-(-side // 32) * 32 for side in recorded[f"image{index}"].shape[:2]]
    dets, labels, masks = found(mask_rcnn(*batch_of(recorded, [index], *sides)))
    wanted = recorded[f"dets{index}"]
    order = np.argsort(-wanted[:, 4], kind="stable")  # MMDetection's are by class
    boxes = dets[:, :4] / recorded[f"scale_factor{index}"]
    np.testing.assert_array_equal(labels, recorded[f"labels{index}"][order])
    np.testing.assert_allclose(boxes, wanted[order, :4], rtol=0, atol=1e-2)
    np.testing.assert_allclose(dets[:, 4], wanted[order, 4], rtol=0, atol=1e-4)
    pasted = recorded[f"masks{index}"][order]
    ours = paste_masks(masks, boxes, *pasted.shape[1:])
    overlap = (ours & pasted).sum((1, 2)) / (ours | pasted).sum((1, 2))
    assert overlap.min() > 0.99


@pytest.mark.parametrize("family", FAMILIES)
def test_images_of_a_batch_do_not_influence_each_other(recorded, family):
    detector = detector_of(family)
    assert detector.family == family
    images, shapes = batch_of(recorded, [2, 0, 1])
    together = detector(images, shapes)
    for index in range(3):
        alone = found(detector(images[index : index + 1], shapes[index : index + 1]))
        assert len(alone[1]) > 3
        for output, output_alone in zip(found(together, index), alone, strict=True):
            np.testing.assert_allclose(output, output_alone, rtol=1e-3, atol=2e-3)
        height, width = shapes[index].tolist()
        assert alone[0][:, :4].min() >= 0
        assert (alone[0][:, :4] <= [width, height, width, height]).all()


def test_without_img_shape_the_whole_input_is_the_image(mask_rcnn, recorded):
    images, _ = batch_of(recorded, [2], 160, 192)
    whole = torch.tensor([[160, 192]])
    for output, expected in zip(mask_rcnn(images), mask_rcnn(images, whole), strict=True):
        assert torch.equal(output, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_found(family):
    config = config_of(family)
    config["model"]["test_cfg"]["rcnn"]["score_thr"] = 1.0
    dets, labels, *masks = build(config)(torch.zeros(2, 3, 64, 96))
    assert labels.eq(-1).all()
    assert not dets.any()
    assert not any(mask.any() for mask in masks)


@pytest.mark.parametrize(
    ("family", "file"),
    [("Cascade Mask R-CNN", "cascade_mask_rcnn_weights.txt"), ("PointRend", "point_rend_weights.txt")],
)
def test_weights_have_mmdetections_names(family, file):
    weights = build(config_of(family)).state_dict()
    ours = [f"{key} {[*value.shape]}" for key, value in sorted(weights.items()) if key.startswith("roi_head")]
    assert ours == (DATA / file).read_text().splitlines()


def first_stage(detector, recorded):
    images, shapes = batch_of(recorded, [2, 1])
    limits = image_limits(images, shapes)
    features = detector.neck(detector.backbone(images))
    return features, *detector.rpn_head(features, limits), limits


def test_rpn_against_loops(mask_rcnn, recorded):
    """Proposals by image, level and box; scores by a sigmoid in double precision, which has no ties."""
    features, proposals, used, limits = first_stage(mask_rcnn, recorded)
    head = mask_rcnn.rpn_head
    maps = head.raw(features, limits)
    logits, deltas = maps[: len(features)], maps[len(features) :]
    for image in range(2):
        kept = []
        for level, (scores, moves) in enumerate(zip(logits, deltas, strict=True)):
            score = scores[image].permute(1, 2, 0).flatten().double().sigmoid()
            moves = moves[image].permute(1, 2, 0).reshape(-1, 4)
            boxes = head.coder.decode(head.priors.level(level, scores), moves, limits[image])
            order = score.argsort(descending=True)[:1000]
            order = order[((boxes[order, 2:] - boxes[order, :2]) > 0).all(1)]
            _, keep = mmort.nms(boxes[order].numpy(), -np.arange(len(order), dtype=np.float64), 0.7)
            kept += [(score[order[k]].item(), boxes[order[k]]) for k in keep]
        kept.sort(key=lambda pair: -pair[0])
        wanted = torch.stack([box for _, box in kept[:1000]])
        assert used[image].sum() == len(wanted)
        assert torch.equal(proposals[image][used[image]], wanted)
        assert not proposals[image][~used[image]].any()


def test_unused_proposals_give_no_detections(mask_rcnn, recorded):
    features, proposals, used, limits = first_stage(mask_rcnn, recorded)
    used = used & (torch.arange(1000) % 2 == 0)
    dets, labels = mask_rcnn.roi_head.detect(features, proposals, used, limits)
    assert (labels >= 0).any()
    without = torch.where(used[..., None], proposals, 0)
    for output, expected in zip(
        (dets, labels), mask_rcnn.roi_head.detect(features, without, used, limits), strict=True
    ):
        assert torch.equal(output, expected)


def test_levels_follow_the_size_of_a_region(mask_rcnn):
    extractor = mask_rcnn.roi_head.bbox_roi_extractor
    sides = torch.tensor([0, 1, 56, 111.99, 112, 223.99, 224, 447.99, 448, 5000])
    rois = torch.stack([torch.zeros(10), torch.zeros(10), torch.zeros(10), sides, sides], 1)
    assert extractor.levels(rois, 4).tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    features = [torch.randn(2, 32, 128 // 2**i, 96 // 2**i) for i in range(5)]
    rois[:, 0] = torch.tensor([0, 1] * 5)
    pooled = extractor(features, rois[torch.tensor([8, 1, 4, 9, 6, 2])])
    for row, region in zip(pooled, rois[torch.tensor([8, 1, 4, 9, 6, 2])], strict=True):
        level = int(extractor.levels(region[None], 4))
        wanted = mmort.roi_align(features[level].numpy(), region[None].numpy(), 7, 1 / (4 * 2**level))
        np.testing.assert_allclose(row, wanted[0], atol=1e-5)


def test_cascade_against_loops(recorded):
    """Each stage starts from the boxes of the one before; the classes come from the mean of all logits."""
    detector = detector_of("Cascade Mask R-CNN")
    features, proposals, used, limits = first_stage(detector, recorded)
    head = detector.roi_head
    dets, labels = head.detect(features, proposals, used, limits)
    for image in range(2):
        boxes, total = proposals[image][used[image]], 0
        for stage in range(3):
            rois = torch.cat([torch.full((len(boxes), 1), float(image)), boxes], 1)
            logits, deltas = head.bbox_head[stage](head.bbox_roi_extractor[stage](features, rois))
            total = total + logits
            boxes = head.bbox_head[stage].coder.decode(boxes, deltas, limits[image])
        scores = (total / 3).softmax(1)[None, :, :-1].numpy()
        wanted, classes, _ = mmort.multiclass_nms(boxes[None].numpy(), scores, 0.05, 0.5, 100)
        np.testing.assert_allclose(dets[image], wanted[0], rtol=1e-4, atol=1e-2)
        np.testing.assert_array_equal(labels[image], classes[0])
    masks = head.mask(features, dets, labels)
    rows = torch.nonzero(labels[1] >= 0)[:5, 0]
    rois = regions(dets[..., :4])[100 + rows]
    each = [
        mask_head(extractor(features, rois), labels[1, rows]).sigmoid()
        for extractor, mask_head in zip(head.mask_roi_extractor, head.mask_head, strict=True)
    ]
    torch.testing.assert_close(masks[1, rows], sum(each) / 3)


def test_point_rend_against_loops(recorded):
    """One region at a time, all its classes refined, the points sampled by torch's grid_sample."""
    detector = detector_of("PointRend")
    features, proposals, used, limits = first_stage(detector, recorded)
    head = detector.roi_head
    dets, labels = head.detect(features, proposals, used, limits)
    masks = head.mask(features, dets, labels)
    assert masks.shape[2:] == (224, 224)
    for image in range(2):
        level = features[0][image : image + 1]
        size = torch.tensor([level.shape[3], level.shape[2]]) * 4.0

        def points_of(channels, points):  # [1, C, h, w] at points [Q, 2] between 0 and 1 -> [1, C, Q]
            return F.grid_sample(channels, points[None, None] * 2 - 1, align_corners=False)[:, :, 0]

        for row in range(3):
            label, (x1, y1, x2, y2) = labels[image, row], dets[image, row, :4]
            corner, extent = torch.stack([x1, y1]), torch.stack([x2 - x1, y2 - y1])
            cells = (torch.arange(14) + 0.5) / 14
            grid = torch.stack(torch.meshgrid(cells, cells, indexing="xy"), -1).reshape(-1, 2)
            pooled = points_of(level, (corner + grid * extent) / size).reshape(1, -1, 14, 14)
            coarse = head.mask_head(pooled)
            mask = F.interpolate(coarse, scale_factor=2, mode="bilinear")  # to 14 x 14, which is not refined
            for side in (28, 56, 112, 224):
                mask = F.interpolate(mask, scale_factor=2, mode="bilinear")
                indices = (-mask[0, label].abs()).flatten().topk(784).indices
                points = (torch.stack([indices % side, indices // side], 1) + 0.5) / side
                fine = points_of(level, (corner + points * extent) / size)
                mask.flatten(2)[:, :, indices] = head.point_head(fine, points_of(coarse, points))
            far = (mask[0, label].sigmoid() - masks[image, row]).abs()
            # The last of the 784 points may be another of almost the same uncertainty.
            assert far.quantile(0.999) < 1e-3
            assert far.max() < 0.2


def test_features_of_points_are_zero_outside():
    entries = {"roi_layer": {"type": "SimpleRoIAlign", "output_size": 1}, "featmap_strides": [4]}
    extractor = PointExtractor(read_entries("mask_roi_extractor", PointExtractor.Entries, entries))
    features = torch.stack([torch.zeros(1, 2, 3), torch.ones(1, 2, 3)])
    points = torch.tensor([[[0.5, 0.5], [0.0, 0.5], [0.0, 0.0], [3.0, 1.0], [-0.5, 1.0], [9.0, 9.0]]])
    sampled = extractor.at([features], torch.tensor([[1.0, 0, 0, 12, 8]]), points / torch.tensor([3, 2]))
    torch.testing.assert_close(sampled[0, 0], torch.tensor([1, 0.5, 0.25, 0.5, 0, 0]))


def test_paste_masks_is_grid_sample(rng):
    masks = 0.3 + 0.7 * rng.random((6, 28, 28), np.float32)
    boxes = np.float32(
        [[3, 4, 20, 31], [0, 0, 40, 50], [0.3, 0.3, 1.1, 1.2], [30.5, 41, 40, 50], [2, 3, 39, 4], [9, 9, 9, 30]]
    )
    pasted = paste_masks(masks, boxes, 50, 40, 0.45)
    y, x = torch.meshgrid(torch.arange(50) + 0.5, torch.arange(40) + 0.5, indexing="ij")
    for mask, (x1, y1, x2, y2), ours in zip(masks, boxes, pasted, strict=True):
        across = torch.zeros_like(x) if x1 == x2 else (x - x1) / (x2 - x1) * 2 - 1
        grid = torch.stack([across, (y - y1) / (y2 - y1) * 2 - 1], -1)
        whole = F.grid_sample(torch.from_numpy(mask)[None, None], grid[None], align_corners=False)[0, 0]
        near = (x > np.floor(x1) - 1) & (x < np.ceil(x2) + 1) & (y > np.floor(y1) - 1) & (y < np.ceil(y2) + 1)
        wanted = (whole >= 0.45) & near
        sure = (whole - 0.45).abs() > 1e-5
        assert ours.any()
        np.testing.assert_array_equal(ours[sure], wanted[sure])
    assert paste_masks(np.zeros((0, 28, 28), np.float32), np.zeros((0, 4), np.float32), 5, 6).shape == (0, 5, 6)


def _set(config, path, value):
    *parents, last = path.split(".")
    for key in parents:
        config = config[key]
    config[last] = value


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("roi_head.bbox_roi_extractor.roi_layer.type", "RoIPool", "roi_layer 'RoIPool' is not supported"),
        ("roi_head.bbox_roi_extractor.roi_layer.type", "PrRoIPool", "roi_layer 'PrRoIPool' is not"),
        ("roi_head.bbox_roi_extractor.type", "SumRoIExtractor", "RoI extractor 'SumRoIExtractor' is not"),
        ("roi_head.bbox_head.type", "MultiInstanceBBoxHead", "bbox_head 'MultiInstanceBBoxHead' is not supported"),
        ("roi_head.bbox_head.loss_cls.type", "FocalLoss", "loss_cls 'FocalLoss' is not supported"),
        ("roi_head.bbox_head.cls_predictor_cfg", {"type": "Bilinear"}, "predictor_cfg 'Bilinear' is not"),
        ("roi_head.bbox_head.with_dancing", True, "with_dancing"),
        ("roi_head.mask_head.type", "MaskIoUHead", "mask_head 'MaskIoUHead' is not supported"),
        ("roi_head.mask_head.upsample_cfg", {"type": "nearest", "scale_factor": 2}, "upsample_cfg 'nearest' is not"),
        ("rpn_head.type", "ATSSHead", "rpn_head 'ATSSHead' is not supported"),
        ("type", "PanopticFPN", "model.type 'PanopticFPN' is not supported"),
    ],
)
def test_unsupported_types_are_named(path, value, text):
    config = copy.deepcopy(CONFIG)
    _set(config["model"], path, value)
    with pytest.raises(ValueError, match=text):
        build(config)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("backbone", "model must have backbone"),
        ("type", "model must have type"),
        ("test_cfg.rpn", "test_cfg must have rpn"),
        ("test_cfg.rcnn", "test_cfg must have rcnn"),
        ("test_cfg.rpn.max_per_img", r"test_cfg\.rpn must have max_per_img"),
        ("test_cfg.rcnn.nms", r"test_cfg\.rcnn must have nms"),
    ],
)
def test_missing_parts_are_named(path, message):
    config = copy.deepcopy(CONFIG)
    *parents, last = path.split(".")
    entries = config["model"]
    for key in parents:
        entries = entries[key]
    del entries[last]
    with pytest.raises(ValueError, match=rf"detect\.build: {message}"):
        build(config)


def test_variants():
    """Heads of different shapes, a shared head without a pyramid, several convolutions in the RPN."""
    config = copy.deepcopy(CONFIG)
    model = config["model"]
    norm = {"type": "GN", "num_groups": 8}
    model["roi_head"]["bbox_head"] |= {"type": "Shared4Conv1FCBBoxHead", "conv_out_channels": 16, "norm_cfg": norm}
    model["roi_head"]["mask_head"] |= {"norm_cfg": norm, "class_agnostic": True}
    model["rpn_head"]["num_convs"] = 2
    weights = build(config).state_dict()
    for key in ("bbox_head.shared_convs.3.gn.weight", "bbox_head.shared_fcs.0.bias", "mask_head.convs.1.gn.bias"):
        assert f"roi_head.{key}" in weights
    assert weights["roi_head.mask_head.conv_logits.weight"].shape == (1, 32, 1, 1)
    assert "rpn_head.rpn_conv.1.conv.weight" in weights
    assert build(config)(torch.randn(1, 3, 64, 64))[2].shape == (1, 100, 28, 28)

    config = copy.deepcopy(CONFIG)
    model = config["model"]
    model["backbone"] = {"type": "ResNet", "depth": 50, "num_stages": 3, "strides": [1, 2, 2], "dilations": [1, 1, 1]}
    model["backbone"] |= {"out_indices": [2], "style": "caffe"}
    model["neck"] = None
    model["rpn_head"] |= {"in_channels": 1024}
    model["rpn_head"]["anchor_generator"] |= {"scales": [2, 4, 8, 16, 32], "strides": [16]}
    head = model["roi_head"]
    head["shared_head"] = {
        "type": "ResLayer",
        "depth": 50,
        "stage": 3,
        "stride": 2,
        "style": "caffe",
        "norm_eval": True,
    }
    head["bbox_roi_extractor"] |= {"out_channels": 1024, "featmap_strides": [16]}
    head["bbox_roi_extractor"]["roi_layer"]["output_size"] = 14
    head["bbox_head"] |= {"type": "BBoxHead", "with_avg_pool": True, "in_channels": 2048}
    del head["bbox_head"]["fc_out_channels"]
    head["mask_roi_extractor"] = None
    head["mask_head"] |= {"num_convs": 0, "in_channels": 2048}
    model["test_cfg"]["rpn"]["max_per_img"] = 10
    detector = build(config)
    assert "roi_head.shared_head.layer4.2.conv3.weight" in detector.state_dict()
    dets, _, masks = detector(torch.randn(1, 3, 64, 64))
    assert dets.shape == (1, 100, 5)
    assert masks.shape == (1, 100, 14, 14)


def test_weights_are_standardized():
    config = copy.deepcopy(CONFIG)
    norm = {"type": "GN", "num_groups": 4}
    for part in ("backbone", "neck"):
        config["model"][part] |= {"conv_cfg": {"type": "ConvWS"}, "norm_cfg": norm}
    detector = build(config)
    convolution = detector.neck.lateral_convs[1].conv
    weight = convolution.weight.flatten(1)
    weight = (weight - weight.mean(1, keepdim=True)) / (weight.var(1, keepdim=True).sqrt() + 1e-5)
    x = torch.randn(2, 24, 5, 6)
    wanted = torch.einsum("oc,nchw->nohw", weight, x)
    torch.testing.assert_close(convolution(x), wanted, rtol=1e-4, atol=1e-4)
    assert detector(torch.randn(1, 3, 64, 64))[0].shape == (1, 100, 5)


def test_raw_is_the_first_stage(mask_rcnn):
    outputs = mask_rcnn.raw(torch.randn(1, 3, 64, 96))
    assert [*outputs[0].shape] == [1, 3, 16, 24]
    assert [*outputs[5].shape] == [1, 12, 16, 24]
    assert len(outputs) == 10
