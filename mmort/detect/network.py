"""A detector in torch behind the interface of ONNX files, so that `mmort.Predictor` runs both in the same way."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mmort.configs.captions import Texts
from mmort.configs.schema import Config
from mmort.contract import MaskFormat, Preprocessing
from mmort.contract.tasks import MASKS
from mmort.detect.detector import Detector
from mmort.detect.loading import build, load_trained


class TorchNetwork:
    """A detector as a `mmort.predict.Network`.

    Parameters
    ----------
    detector : Detector
        In evaluation mode.
    preprocessing : Preprocessing
        What makes its input.
    left_out : tuple of str
        What the detector leaves out of the config's test pipeline, to be shown to the user.
    threads : int, optional
        The threads of torch's operators, where they were set.
    """

    engine = "torch"
    input_shape = None, None, None

    def __init__(
        self,
        detector: Detector,
        preprocessing: Preprocessing,
        left_out: tuple[str, ...] = (),
        threads: int | None = None,
    ) -> None:
        self.detector, self.preprocessing, self.left_out, self.threads = detector, preprocessing, left_out, threads

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes by label; None if the checkpoint has none."""
        return self.detector.classes or None

    @property
    def has_masks(self) -> bool:
        """Whether the detector has masks."""
        return MASKS.name in self.detector.output_names

    @property
    def mask_format(self) -> MaskFormat:
        """The format of the detector's masks."""
        return self.detector.mask_format

    def __call__(self, input: NDArray[np.float32], img_shape: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Run the detector on a batch."""
        with torch.inference_mode():
            outputs = self.detector(torch.from_numpy(input), torch.from_numpy(img_shape))
        return [output.numpy() for output in outputs]


def load_network(
    config: Config,
    checkpoint: str | os.PathLike[str],
    threads: int | None = None,
    *,
    texts: Texts | None = None,
    vocabulary: str | os.PathLike[str] | None = None,
) -> TorchNetwork:
    """Load a detector that computes in torch what its exported file computes in ONNX Runtime.

    Parameters
    ----------
    config : dict
        An MMDetection config, as `read_config` returns it.
    checkpoint : path
        The ``.pth`` file that was trained with it.
    threads : int, optional
        Threads for torch's operators, in the whole process.  By default torch's choice.
    texts : str, sequence of str or dict, optional
        What a detector with a language model looks for; see `mmort.detect.load`.
    vocabulary : path, optional
        The ``vocab.txt`` of the language model.

    Returns
    -------
    TorchNetwork
        With the preprocessing of the config's test pipeline.

    Raises
    ------
    ValueError
        If config or checkpoint cannot be read, are not supported or do not match, or `threads` is not positive; if
        texts or vocabulary do not fit the language model, or there is none.
    """
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads must be positive, got {threads}")
        torch.set_num_threads(threads)
    detector = build(config)
    preprocessing = Preprocessing.from_config(config, **detector.box_settings)
    load_trained(detector, checkpoint, config, texts, vocabulary)
    return TorchNetwork(detector, preprocessing, detector.prepare_for_export(flip=preprocessing.flip), threads)
