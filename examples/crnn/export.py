"""Exports weights.npz to crnn.onnx, for lines of any width and number: python export.py."""

import warnings
from pathlib import Path

import torch

import mmort.onnx
from model import load

HERE = Path(__file__).parent


def export(model, path):
    """Export a network; the file is written only if ONNX Runtime agrees with torch, at other sizes too."""
    sizes = {0: "batch", 3: "width"}
    with warnings.catch_warnings():
        # torch warns that other batches than the example's may fail, but the check runs them.
        warnings.filterwarnings("ignore", "Exporting a model to ONNX with a batch_size other than 1")
        return mmort.onnx.export(
            model,
            (torch.rand(2, 1, 32, 100),),
            path,
            dynamic_shapes=(sizes,),
            check_sizes=[(1, 1, 32, 320), (3, 1, 32, 47)],
            input_names=["image"],
            output_names=["scores"],
            exporter="legacy",  # torch's newer exporter unrolls an LSTM, for which the width must be fixed
        )


if __name__ == "__main__":
    print(export(load(HERE / "weights.npz"), HERE / "crnn.onnx"))
