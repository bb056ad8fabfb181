"""The end results of an image: the original's, what the original makes of a file, and what `mmort.Predictor` makes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config, plain_type
from mmort.images import Image, as_channels, resize
from mmort.original.adapters import Adapter
from mmort.original.building import described, quiet


def steps_on_images(config: Config) -> list[Config]:
    """Return the steps of a config's test pipeline but for annotations; ValueError if the first loads no image."""
    steps = [step for step in DetectorConfig(config).test_steps if "Annotation" not in str(step["type"])]
    if not steps or "LoadImage" not in str(steps[0]["type"]):
        first = repr(plain_type(steps[0]["type"])) if steps else "none"
        raise ValueError(f"export: the config's test pipeline must begin with LoadImageFromFile, got {first}")
    return steps


def prepared_by(adapter: Adapter, image: Image) -> tuple[torch.Tensor, Any]:
    """Return an image as input and data samples of the original's own test pipeline and data preprocessor."""
    from mmengine.dataset import Compose, pseudo_collate
    from mmengine.registry import init_default_scope

    steps = [described(step) for step in steps_on_images(adapter.original.config)]
    with quiet():
        init_default_scope(adapter.original.package.module)
        # What LoadImageFromFile leaves, as the image is in memory.
        height, width = image.shape[:2]
        pixels = image.astype(np.float32) if steps[0].get("to_float32") else image
        data = {"img": pixels, "img_path": "", "img_shape": (height, width), "ori_shape": (height, width)}
        data = Compose(steps[1:])({**data, "instances": [], **adapter.annotations(image)})
        made = adapter.model.data_preprocessor(pseudo_collate([data]), False)
    return made["inputs"], made["data_samples"]


def compare(adapter: Adapter, file: Path, image: Image) -> str:
    """Compare the three end results for an image, and return how far they agree, as text.

    Some networks fail with inputs whose sides are no multiples of their strides.  Where the original fails with the
    image, the image is stretched to the proportions that the test pipeline is for.

    Raises
    ------
    ValueError
        If the inputs are not the same bits, the results differ by more than rounding can explain, or the original fails
        with the stretched image, too.
    """
    predictor = adapter.predictor(file)
    image = as_channels("export", image, predictor.preprocessing.color_type)
    try:
        input, samples, expected = _original_results(adapter, image)
    except Exception:
        size = predictor.preprocessing.size
        if size is None or image.shape[1::-1] == size:
            raise
        image = resize(image, *size)
        try:
            input, samples, expected = _original_results(adapter, image)
        except Exception as error:
            raise ValueError(f"export: the original fails with an image of {size[1]} x {size[0]}: {error}") from error
    own = torch.from_numpy(adapter.input_of(predictor, image))[None]
    if input.shape != own.shape or not torch.equal(input, own):
        raise ValueError(
            f"export: mmort's preprocessing must give the original's input, {tuple(input.shape)}, bit for bit, got "
            f"{tuple(own.shape)} with other values"
        )

    def run(window: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = predictor.network(window.numpy(), np.array([window.shape[2:]] * len(window), np.int64))
        return tuple(map(torch.from_numpy, outputs))

    with torch.no_grad(), quiet():
        by_original = adapter.of_original(adapter.predict(input, copy.deepcopy(samples), run)[0])
    by_mmort = adapter.of_mmort(predictor(image))
    texts = [
        f"{adapter.difference(expected, actual)} {by}"
        for actual, by in ((by_original, "through the original's own postprocessing"), (by_mmort, "through mmort"))
    ]
    return f"end results of an image, compared with the original's: {', '.join(texts)}"


def _original_results(adapter: Adapter, image: Image) -> tuple[torch.Tensor, Any, Any]:
    """Return the original's input and data samples of an image, and the part of its end result that is compared."""
    input, samples = prepared_by(adapter, image)
    with torch.no_grad(), quiet():
        return input, samples, adapter.of_original(adapter.predict(input, copy.deepcopy(samples))[0])
