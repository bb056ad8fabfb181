"""Images of figures drawn with strokes, with the keypoints of each in COCO's format, and configs of small networks."""

import json

import cv2
import numpy as np

NAMES = ("head", "left_hand", "right_hand", "left_foot", "right_foot")
INFO = """
dataset_info = dict(
    dataset_name="strokes",
    keypoint_info={
        0: dict(name="head", id=0, color=[51, 153, 255], type="upper", swap=""),
        1: dict(name="left_hand", id=1, color=[0, 255, 0], type="upper", swap="right_hand"),
        2: dict(name="right_hand", id=2, color=[255, 128, 0], type="upper", swap="left_hand"),
        3: dict(name="left_foot", id=3, color=[0, 255, 0], type="lower", swap="right_foot"),
        4: dict(name="right_foot", id=4, color=[255, 128, 0], type="lower", swap="left_foot"),
    },
    skeleton_info={
        0: dict(link=("head", "left_hand"), id=0, color=[0, 255, 0]),
        1: dict(link=("head", "right_hand"), id=1, color=[255, 128, 0]),
        2: dict(link=("left_foot", "right_foot"), id=2, color=[51, 153, 255]),
    },
    joint_weights=[1.0] * 5,
    sigmas=[0.05, 0.06, 0.06, 0.08, 0.08],
)
"""
CONFIG = """
default_scope = "mmpose"
codec = {codec}
model = dict(
    type="TopdownPoseEstimator",
    data_preprocessor=dict(
        type="PoseDataPreprocessor", mean=[120.0, 115.0, 100.0], std=[58.0, 57.0, 59.0], bgr_to_rgb=True
    ),
    backbone=dict(type="ResNet", depth=18, base_channels=16, stem_channels=16),
    head={head},
    test_cfg={test_cfg},
)
test_pipeline = [
    dict(type="LoadImage"),
    dict(type="GetBBoxCenterScale", padding={padding}),
    dict(type="TopdownAffine", input_size=codec["input_size"], use_udp={use_udp}),
    dict(type="PackPoseInputs"),
]
test_dataloader = dict(
    batch_size=3,
    dataset=dict(
        type="CocoDataset",
        data_root={root!r},
        data_mode="topdown",
        ann_file="annotations.json",
        data_prefix=dict(img="images"),
        metainfo=dict(from_file={info!r}),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_evaluator = dict(type="CocoMetric", ann_file={annotations!r})
"""

HEATMAPS = (
    "dict(type='HeatmapHead', in_channels=128, out_channels=5, deconv_out_channels=(32, 32, 32), "
    "deconv_kernel_sizes=(4, 4, 4), loss=dict(type='KeypointMSELoss', use_target_weight=True), decoder=codec)"
)
FLIPPED = "dict(flip_test=True, flip_mode='heatmap', shift_heatmap={})"
SIZES = "input_size=(64, 96), heatmap_size=(16, 24), sigma=1.0"
NETWORKS = {
    "RTMPose": {
        "codec": "dict(type='SimCCLabel', input_size=(48, 64), sigma=(2.5, 2.9), simcc_split_ratio=2.0, "
        "normalize=False, use_dark=False)",
        "head": "dict(type='RTMCCHead', in_channels=128, out_channels=5, input_size=codec['input_size'], "
        "in_featuremap_size=(2, 2), simcc_split_ratio=codec['simcc_split_ratio'], final_layer_kernel_size=1, "
        "gau_cfg=dict(hidden_dims=32, s=16, expansion_factor=2, dropout_rate=0.0, drop_path=0.0, act_fn='SiLU', "
        "use_rel_bias=False, pos_enc=False), loss=dict(type='KLDiscretLoss', use_target_weight=True, beta=10.0, "
        "label_softmax=True), decoder=codec)",
        "test_cfg": "dict(flip_test=True)",
    },
    "heatmaps": {"codec": f"dict(type='MSRAHeatmap', {SIZES})", "head": HEATMAPS, "test_cfg": FLIPPED.format(True)},
    "DARK": {
        "codec": f"dict(type='MSRAHeatmap', unbiased=True, blur_kernel_size=5, {SIZES})",
        "head": HEATMAPS,
        "test_cfg": "dict(flip_test=False)",
        "padding": 1.5,
    },
    "UDP": {
        "codec": f"dict(type='UDPHeatmap', blur_kernel_size=7, {SIZES})",
        "head": HEATMAPS,
        "test_cfg": FLIPPED.format(False),
        "use_udp": True,
    },
    "Megvii": {
        "codec": "dict(type='MegviiHeatmap', input_size=(64, 96), heatmap_size=(16, 24), kernel_size=7)",
        "head": HEATMAPS,
        "test_cfg": FLIPPED.format(False),
    },
    "regression": {
        "codec": "dict(type='RegressionLabel', input_size=(48, 64))",
        "head": "dict(type='RegressionHead', in_channels=128, num_joints=5, "
        "loss=dict(type='SmoothL1Loss', use_target_weight=True), decoder=codec)",
        "test_cfg": "dict(flip_test=True, shift_coords=True)",
        "neck": True,
    },
    "DSNT": {
        "codec": f"dict(type='IntegralRegressionLabel', {SIZES}, normalize=True)",
        "head": "dict(type='DSNTHead', in_channels=128, in_featuremap_size=(2, 3), num_joints=5, "
        "deconv_out_channels=(32, 32, 32), deconv_kernel_sizes=(4, 4, 4), loss=dict(type='MultipleLossWrapper', losses="
        "[dict(type='SmoothL1Loss', use_target_weight=True), dict(type='JSDiscretLoss', use_target_weight=True)]), "
        "decoder=codec)",
        "test_cfg": "dict(flip_test=True, shift_coords=True)",
    },
    "RLE": {
        "codec": "dict(type='RegressionLabel', input_size=(48, 64))",
        "head": "dict(type='RLEHead', in_channels=128, num_joints=5, "
        "loss=dict(type='RLELoss', use_target_weight=True), decoder=codec)",
        "test_cfg": "dict(flip_test=True)",
        "neck": True,
    },
}
"""Codec, head and test of small networks."""


def write(folder, count, seed):
    """Write images of several figures, and their keypoints; some are hidden, and one figure is no person."""
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    for index in range(count):
        height, width = int(rng.integers(90, 130)), int(rng.integers(150, 190))
        noise = rng.integers(0, 90, (5, 7, 3), dtype=np.uint8)
        image = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
        for x in range(4, width - 44, 52):
            centre = np.array([x + 22, 42]) + rng.integers(-4, 5, 2)
            points = (
                centre + np.array([[0, -24], [-16, -4], [16, -4], [-10, 30], [10, 30]]) + rng.integers(-5, 6, (5, 2))
            )
            colours = [tuple(map(int, rng.integers(140, 256, 3))) for _ in range(3)]
            hip = tuple(map(int, centre + np.array((0, 8))))
            cv2.line(image, tuple(map(int, points[0])), hip, colours[0], 2, cv2.LINE_AA)
            for point, colour in zip(points[1:], (colours[1], colours[1], colours[2], colours[2]), strict=True):
                start = tuple(map(int, centre - np.array((0, 8)))) if colour is colours[1] else hip
                cv2.line(image, start, tuple(map(int, point)), colour, 2, cv2.LINE_AA)
            cv2.circle(image, tuple(map(int, points[0])), 5, colours[0], -1, cv2.LINE_AA)
            visible = np.where(rng.random(5) < 0.1, 0, 2)
            low, high = points.min(axis=0) - 6, points.max(axis=0) + 6
            box = [*map(float, low), *map(float, high - low)]
            keypoints = np.column_stack([points * (visible[:, None] > 0), visible]).astype(float)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index + 1,
                    "category_id": 1,
                    "bbox": box,
                    "area": box[2] * box[3] * 0.6,
                    "iscrowd": 0,
                    "keypoints": keypoints.ravel().tolist(),
                    "num_keypoints": int((visible > 0).sum()),
                }
            )
        name = f"{index:03}.png"
        cv2.imwrite(str(folder / "images" / name), image)
        images.append({"id": index + 1, "file_name": name, "height": height, "width": width})
    categories = [{"id": 1, "name": "figure", "keypoints": NAMES, "skeleton": []}]
    contents = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(contents))
    (folder / "info.py").write_text(INFO)


def config(folder, network, root):
    """Write the config of a network, and return its path."""
    settings = {"padding": 1.25, "use_udp": False, "neck": False, **NETWORKS[network]}
    text = CONFIG.format(
        **settings, root=str(root), info=str(root / "info.py"), annotations=str(root / "annotations.json")
    )
    if settings["neck"]:
        text = text.replace("    head=", "    neck=dict(type='GlobalAveragePooling'),\n    head=")
    path = folder / "config.py"
    path.write_text(text)
    return path
