"""Files of transformers' detectors by torch's two exporters, with random weights and their image processors' config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.tools.exporters.exporter import SIDE, Exporter, Rows, names, normalized

CLASSES = 5


class Named(torch.nn.Module):
    """A model of transformers that returns logits and boxes, for an image and perhaps constant words."""

    def __init__(self, model: torch.nn.Module, **constants: torch.Tensor) -> None:
        super().__init__()
        self.model, self.constants = model, constants

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.model(pixel_values=values, **self.constants)
        return outputs.logits, outputs.pred_boxes


def transformers(
    name: str,
    processor_name: str | None = None,
    *,
    stages: int = 0,
    dynamo: bool = False,
    size: dict[str, int] | None = None,
    writes_config: bool = True,
    preset: str | None = None,
    **arguments: Any,
) -> Exporter:
    """Return a detector of transformers with random weights and its image processor; a backbone has some stages."""

    def make(folder: Path) -> Path:
        import transformers as package

        torch.manual_seed(0)
        settings = dict(arguments)
        if stages:
            outputs = [f"stage{number}" for number in range(5 - stages, 5)]
            sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1]}
            settings["backbone_config"] = package.ResNetConfig(layer_type="basic", out_features=outputs, **sizes)
        config = getattr(package, f"{name}Config")(num_labels=CLASSES, **settings)
        model = getattr(package, f"{name}ForObjectDetection")(config).eval()
        side = (size or {}).get("height", SIDE)
        with torch.no_grad():
            normalized(model, lambda batch: model(pixel_values=batch[..., :side, :side]))
        processor = getattr(package, f"{processor_name or name}ImageProcessor")(
            size=size or {"height": SIDE, "width": SIDE}
        )
        return export_transformers(model, processor, folder, dynamo=dynamo)

    layout = None if writes_config else {"classes": names(CLASSES)}
    return Exporter(make, of_transformers, config=writes_config, layout=layout, preset=preset)


def export_transformers(model: Any, processor: Any, folder: Path, *, dynamo: bool = False) -> Path:
    """Write a detector of transformers for inputs of its image processor's size, and the config of both beside it."""
    model.config.save_pretrained(folder)
    processor.save_pretrained(folder)
    path, size = folder / "model.onnx", processor.size
    sides = size["height"] or size["shortest_edge"], size["width"] or size["longest_edge"]
    common: dict[str, Any] = {"input_names": ["pixel_values"], "output_names": ["logits", "pred_boxes"]}
    if size["height"] is None:  # images of any size
        axes = {"pixel_values": {2: "height", 3: "width"}}
        common |= {"dynamic_axes": axes}
    if dynamo:
        torch.onnx.export(Named(model), (torch.zeros(1, 3, *sides),), path, dynamo=True, external_data=False, **common)
    else:
        torch.onnx.export(Named(model), (torch.zeros(1, 3, *sides),), path, opset_version=17, dynamo=False, **common)
    return path


def of_transformers(path: Path, image: np.ndarray) -> Rows:
    """Return what transformers detects with a file of `export_transformers`."""
    import onnxruntime
    import transformers as package

    processor = package.AutoImageProcessor.from_pretrained(path.parent)
    values = processor(image[..., ::-1].copy(), return_tensors="np")["pixel_values"]
    session = onnxruntime.InferenceSession(path)
    logits, boxes = map(torch.from_numpy, session.run(None, {"pixel_values": values}))
    outputs = package.models.rt_detr.modeling_rt_detr.RTDetrObjectDetectionOutput(logits=logits, pred_boxes=boxes)
    sizes = torch.tensor([image.shape[:2]])
    (result,) = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
    return result["boxes"].numpy(), result["scores"].numpy(), result["labels"].numpy()


def of_words(name: str, writes_config: bool = True, preset: str | None = None, **arguments: Any) -> Exporter:
    """Return OWL-ViT or OWLv2 with three constant queries, and small weights: others make all scores 0 or 1."""

    def make(folder: Path) -> Path:
        import transformers as package

        torch.manual_seed(0)
        text = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        vision = {
            "image_size": SIDE,
            "patch_size": 32,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "initializer_factor": 0.1,
        }
        config = getattr(package, f"{name}Config")(
            text_config=text
            | {"intermediate_size": 32, "eos_token_id": 2, "projection_dim": 32, "initializer_factor": 0.1},
            vision_config=vision | {"intermediate_size": 32},
            projection_dim=32,
            initializer_factor=0.1,
            id2label={0: "cat", 1: "dog", 2: "owl"},
        )
        model = getattr(package, f"{name}ForObjectDetection")(config).eval()
        processor = getattr(package, f"{name}ImageProcessor")(size={"height": SIDE, "width": SIDE})
        model.config.save_pretrained(folder)
        processor.save_pretrained(folder)
        words = {
            "input_ids": torch.tensor([[1, 5, 2], [1, 6, 2], [1, 7, 2]]),
            "attention_mask": torch.ones(3, 3).long(),
        }
        return exported_with_words(model, words, folder)

    return Exporter(make, of_transformers, config=writes_config, preset=preset)


def exported_with_words(model: Any, words: dict[str, torch.Tensor], folder: Path) -> Path:
    """Return the file of a model whose words are constants."""
    torch.onnx.export(
        Named(model, **words),
        (torch.zeros(1, 3, SIDE, SIDE),),
        folder / "model.onnx",
        opset_version=17,
        dynamo=False,
        input_names=["pixel_values"],
        output_names=["logits", "pred_boxes"],
    )
    return folder / "model.onnx"


def grounding_dino(writes_config: bool = True) -> Exporter:
    """Return a small Grounding DINO with a constant text, whose logits are of tokens rather than of classes."""

    def make(folder: Path) -> Path:
        import transformers as package

        torch.manual_seed(0)
        backbone = {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8], "window_size": 5}
        text = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = package.GroundingDinoConfig(
            backbone_config=package.SwinConfig(**backbone, out_features=["stage2", "stage3", "stage4"]),
            text_config=package.BertConfig(**text, intermediate_size=32),
            num_queries=50,
            d_model=64,
            encoder_layers=1,
            decoder_layers=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
        )
        model = package.GroundingDinoForObjectDetection(config).eval()
        processor = package.GroundingDinoImageProcessor(size={"height": SIDE, "width": SIDE})
        words = {
            "input_ids": torch.tensor([[1, 5, 12, 6, 12, 2]]),
            "token_type_ids": torch.zeros(1, 6).long(),
            "attention_mask": torch.ones(1, 6).long(),
            "pixel_mask": torch.ones(1, SIDE, SIDE).long(),
        }
        model.config.save_pretrained(folder)
        processor.save_pretrained(folder)
        return exported_with_words(model, words, folder)

    return Exporter(make, of_transformers, config=writes_config)


SMALL: dict[str, Any] = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
QUERIES: dict[str, Any] = SMALL | {"num_queries": 50}
LAYERS: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2}
YOLOS: dict[str, Any] = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4}
FEW: dict[str, Any] = {"num_queries": 50, "decoder_layers": 2}
WINDOWS = {"height": 280, "width": 280}
"""A multiple of patches of 14 pixels, four windows on a side."""
SHORT_SIDE = {"shortest_edge": 256, "longest_edge": 416}

MODELS: dict[str, Callable[..., Exporter]] = {
    "YOLOS": lambda **more: transformers("Yolos", **YOLOS, **more),
    "DETR": lambda **more: transformers("Detr", stages=1, **QUERIES, **LAYERS, **more),
    "Table Transformer": lambda **more: transformers("TableTransformer", "Detr", stages=1, **QUERIES, **LAYERS, **more),
    "Conditional DETR": lambda **more: transformers("ConditionalDetr", stages=1, **QUERIES, **LAYERS, **more),
    "DAB-DETR": lambda **more: transformers("DabDetr", "ConditionalDetr", stages=1, **QUERIES, **LAYERS, **more),
    "Deformable DETR": lambda **more: transformers("DeformableDetr", stages=3, **QUERIES, **LAYERS, **more),
    "RT-DETR": lambda **more: transformers("RTDetr", num_queries=100, decoder_layers=2, **more),
    "RT-DETRv2": lambda **more: transformers("RTDetrV2", "RTDetr", num_queries=100, decoder_layers=2, **more),
    "D-FINE": lambda **more: transformers("DFine", "RTDetr", num_queries=100, decoder_layers=2, **more),
    "DEIMv2": lambda **more: transformers("Deimv2", "RTDetr", num_queries=100, decoder_layers=2, **more),
    "LW-DETR": lambda **more: transformers("LwDetr", "DeformableDetr", projector_scale_factors=[1.0], **FEW, **more),
    "RF-DETR": lambda **more: transformers("RfDetr", **FEW, **{"size": WINDOWS} | more),
}
FILES = {
    **{f"transformers {name}": make() for name, make in MODELS.items()},
    **{f"transformers {name}, dynamo": make(dynamo=True) for name, make in MODELS.items()},
    "transformers YOLOS, any size": MODELS["YOLOS"](size=SHORT_SIDE),
    "transformers DETR, any size": MODELS["DETR"](size=SHORT_SIDE),
    "transformers Conditional DETR, any size": MODELS["Conditional DETR"](size=SHORT_SIDE),
    "transformers DETR without config": MODELS["DETR"](writes_config=False, preset="detr"),
    "transformers RT-DETR without config": MODELS["RT-DETR"](writes_config=False, preset="rtdetr-transformers"),
    "transformers OWL-ViT, constant words": of_words("OwlViT"),
    "transformers OWLv2, constant words": of_words("Owlv2"),
    "transformers OWLv2 without config": of_words("Owlv2", writes_config=False),
    "transformers Grounding DINO, constant words": grounding_dino(),
    "transformers Grounding DINO without config": grounding_dino(writes_config=False),
}
"""The files by name."""
