"""Images of one or four channels and of 16 bits become what MMDetection's own pipeline makes of them, bit for bit."""

import copy

import cv2
import numpy as np
import pytest
from mmdet.registry import MODELS, TRANSFORMS
from mmengine.dataset import Compose, pseudo_collate

from mmort.predict import Preprocessing
from tests.originals.original import _without_warnings

FILES = {
    "grey.png": ((61, 83), np.uint8),
    "grey16.png": ((61, 83), np.uint16),
    "color.png": ((61, 83, 3), np.uint8),
    "color16.png": ((61, 83, 3), np.uint16),
    "alpha.png": ((61, 83, 4), np.uint8),
    "alpha16.png": ((61, 83, 4), np.uint16),
    "grey16.tif": ((61, 83), np.uint16),
    "float.tif": ((61, 83), np.float32),
    "photo.jpg": ((61, 83, 3), np.uint8),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for name, (shape, dtype) in FILES.items():
        smooth = cv2.GaussianBlur(rng.random(shape), (0, 0), 3)
        scaled = (smooth - smooth.min()) / np.ptp(smooth)
        limit = 1 if dtype is np.float32 else np.iinfo(dtype).max
        assert cv2.imwrite(str(folder / name), (scaled * limit).astype(dtype))
    return folder


def config(color_type, channels, *steps, preprocessor=None, to_float32=False):
    load = {"type": "LoadImageFromFile", "color_type": color_type, "to_float32": to_float32}
    pack = {"type": "PackDetInputs", "meta_keys": ("img_shape", "ori_shape", "scale_factor")}
    return {
        "model": {
            "backbone": {"type": "ResNet", "in_channels": channels},
            "data_preprocessor": {"type": "DetDataPreprocessor", **(preprocessor or {})},
        },
        "test_pipeline": [load, *copy.deepcopy(steps), pack],
    }


@_without_warnings
def of_mmdetection(settings, path):
    """Return the network's input for an image."""
    results = Compose([TRANSFORMS.build(copy.deepcopy(step)) for step in settings["test_pipeline"]])(
        {"img_path": str(path), "img_id": 0}
    )
    preprocessor = MODELS.build(copy.deepcopy(settings["model"]["data_preprocessor"]))
    return preprocessor(pseudo_collate([results]))["inputs"].numpy()


RESIZE = {"type": "Resize", "scale": (97, 60), "keep_ratio": True}
ONE = {"mean": [100.5], "std": [50.2], "pad_size_divisor": 32}


@pytest.mark.parametrize(
    ("color_type", "channels", "preprocessor", "names"),
    [
        ("grayscale", 1, ONE, FILES.keys() - {"float.tif"}),
        ("grayscale", 1, {"pad_size_divisor": 32}, ["photo.jpg"]),
        ("unchanged", 1, ONE, [name for name, (shape, _) in FILES.items() if len(shape) == 2]),
        ("unchanged", 4, ONE, ["alpha.png", "alpha16.png"]),
        ("unchanged", 4, {}, ["alpha16.png"]),
        ("unchanged", 3, {"mean": [1, 2, 3], "std": [4, 5, 6], "bgr_to_rgb": True}, ["color.png", "color16.png"]),
        ("color", 3, ONE, ["color.png", "grey16.png", "alpha.png"]),
    ],
)
@pytest.mark.parametrize("pad", [(), ({"type": "Pad", "size": (110, 100), "pad_val": {"img": 7}},)])
@pytest.mark.parametrize("to_float32", [False, True])
def test_files_of_version_3(folder, color_type, channels, preprocessor, names, pad, to_float32):
    settings = config(color_type, channels, RESIZE, *pad, preprocessor=preprocessor, to_float32=to_float32)
    prepare = Preprocessing.from_config(settings)
    for name in sorted(names):
        expected = of_mmdetection(settings, folder / name)
        input, _ = prepare.batch([prepare(folder / name)])
        assert input.shape == expected.shape == (1, channels, *input.shape[2:]), name
        assert (input == expected).all(), name
        assert expected.std() > 0.1
        assert Preprocessing.from_dict(prepare.to_dict()) == prepare


@pytest.mark.parametrize(
    ("color_type", "mean", "std", "name"),
    [
        ("grayscale", [100.5], [50.2], "photo.jpg"),
        ("unchanged", [3000.5], [5000.25], "grey16.tif"),
        ("unchanged", [1.5, 2.25, 3.1, 4.7], [5.3, 6.1, 7.9, 8.2], "alpha.png"),
        ("unchanged", [1e4, 2e4, 3e4, 4e4], [5e3, 6e3, 7e3, 8e3], "alpha16.png"),
    ],
)
def test_the_step_normalize(folder, color_type, mean, std, name):
    """Which MMDetection 2 has in its pipeline, by the same function of MMCV."""
    normalize = {"type": "Normalize", "mean": mean, "std": std, "to_rgb": False}
    settings = config(color_type, len(mean), RESIZE, normalize)
    prepare = Preprocessing.from_config(settings)
    expected = of_mmdetection(settings, folder / name)
    assert (prepare.batch([prepare(folder / name)])[0] == expected).all()
