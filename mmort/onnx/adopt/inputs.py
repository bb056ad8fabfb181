"""A foreign file's inputs: which one is the image, what the others hold, and the nodes that make them of mmort's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.helper
from numpy.typing import NDArray

from mmort.contract.tasks import IMG_SHAPE, ORI_SHAPE
from mmort.onnx.graph import structure
from mmort.onnx.graph.builder import BOOL, FLOAT, INT64, FunctionBuilder, Value

PIXEL_MASK = "pixel_mask"

MEANINGS = {
    PIXEL_MASK: "1 at each pixel of the image and 0 in the padding, (N, H, W)",
    "original_wh": "width and height of the original image, (N, 2)",
    "original_hw": "height and width of the original image, (N, 2)",
    "resized_hw": "height and width of the resized image without its padding, (N, 2)",
    "scale_hw": "the factors by which height and width were resized, (N, 2)",
    "resized_hw_scale": "height and width of the resized image, and the factor, (N, 3)",
}
"""The possible contents of inputs besides the image."""

KNOWN = {
    PIXEL_MASK: PIXEL_MASK,
    "orig_target_sizes": "original_wh",
    "scale_factor": "scale_hw",
    "im_shape": "resized_hw",
    "im_info": "resized_hw_scale",
}
"""The meanings of inputs by the names that exporters give them: transformers, RT-DETR, PaddleDetection."""

IMAGE_DTYPES = {"float32": FLOAT, "float16": onnx.TensorProto.FLOAT16, "uint8": onnx.TensorProto.UINT8}
"""The element types of an image."""

_DTYPES = {
    "int64": INT64,
    "float32": FLOAT,
    "bool": BOOL,
    "int32": onnx.TensorProto.INT32,
    "float16": onnx.TensorProto.FLOAT16,
}
"""The element types of other inputs."""


class Tensor(NamedTuple):
    """An input or output: its name, element type as ONNX names it, and sizes, None where the file states none."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.name} {self.dtype} [{sizes}]"


class Inputs(NamedTuple):
    """A file's inputs: the image, with channels before rows as mmort has it, and the others with their meanings."""

    image: Tensor
    channels_last: bool
    further: tuple[tuple[Tensor, str], ...]


def read_inputs(tensors: Sequence[Tensor], entries: Mapping[str, Any]) -> Inputs:
    """Return the inputs of a file with their meanings.

    Parameters
    ----------
    tensors : sequence of Tensor
    entries : mapping
        A layout's, of which ``inputs`` has the meanings of inputs with other names than the known ones, and
        ``channels_last`` where the channels are.

    Raises
    ------
    ValueError
        If there is not one image, or an input's meaning is unknown.
    """
    stated = entries.get("inputs") or {}
    if not isinstance(stated, Mapping) or not all(meaning in MEANINGS for meaning in stated.values()):
        raise ValueError(f"adopt: inputs must have one of {', '.join(MEANINGS)} for each name, got {str(stated)[:80]}")
    meanings = KNOWN | dict(stated)
    images = [tensor for tensor in tensors if tensor.name not in meanings]
    by_rank = [tensor for tensor in images if len(tensor.shape or ()) >= 3]
    shown = ", ".join(map(str, tensors))
    if len(by_rank) == 1 and len(images) > 1:
        unknown = ", ".join(tensor.name for tensor in images if tensor is not by_rank[0])
        raise ValueError(
            f"adopt: inputs besides the image must have a known meaning; --set inputs.NAME=MEANING states it, with "
            f"{', '.join(MEANINGS)}; unknown: {unknown}, of {shown}"
        )
    image = images[0] if len(images) == 1 else None
    last = None if image is None else _channels_last(image, entries.get("channels_last"))
    if image is None or last is None or image.dtype not in IMAGE_DTYPES:
        known = ", ".join(KNOWN)
        raise ValueError(
            "adopt: the file must have one image as input, float32, float16 or uint8 [N, 3, H, W] or [N, H, W, 3], or "
            f"without N, and perhaps {known}, got {shown}"
        )
    further = tuple((tensor, meanings[tensor.name]) for tensor in tensors if tensor.name in meanings)
    for tensor, meaning in further:
        _check_further(tensor, meaning)
    assert image.shape is not None
    shape = (*image.shape[:-3], image.shape[-1], *image.shape[-3:-1]) if last else image.shape
    return Inputs(image._replace(shape=shape), last, further)


def _channels_last(image: Tensor, stated: Any) -> bool | None:
    """Return whether the channels of an image come last; None if it cannot have three."""
    if stated not in (None, True, False):
        raise ValueError(f"adopt: channels_last must be true or false, got {stated!r:.60}")
    shape = image.shape or ()
    if len(shape) not in (3, 4):
        return None
    may_be_first, may_be_last = (shape[axis] in (3, None) for axis in (-3, -1))
    last = shape[-1] == 3 and shape[-3] != 3 if stated is None else stated
    if may_be_last if last else may_be_first:
        return last
    if stated is not None and (may_be_first or may_be_last):
        raise ValueError(f"adopt: channels_last must be {'false' if last else 'true'} for {image}, got {stated}")
    return None


def _check_further(tensor: Tensor, meaning: str) -> None:
    """Refuse an input that has not the type or the shape for what it should hold."""
    shape = tensor.shape or ()
    required = f"{', '.join(_DTYPES)}, {MEANINGS[meaning]}"
    if meaning == PIXEL_MASK:
        fits = len(shape) == 3
    else:
        fits = len(shape) == 2 and shape[1] in (3 if meaning == "resized_hw_scale" else 2, None)
    if not fits or tensor.dtype not in _DTYPES:
        raise ValueError(f"adopt: {tensor.name} must be {required}, got {tensor}")


def example_feeds(inputs: Inputs, height: int, width: int) -> dict[str, NDArray[Any]]:
    """Return inputs with an image of noise, of this size where the file does not fix it, that was not resized."""
    image = inputs.image
    *leading, rows, columns = image.shape or ()
    shape = [size or number for size, number in zip(leading, (1, 3)[-len(leading) :], strict=True)]
    shape += [rows or height, columns or width]
    noise: NDArray[Any] = np.random.default_rng(0).random(shape, np.float32)
    if image.dtype == "uint8":
        noise = noise * 255
    size = np.array([shape[-2:]])
    values = {
        "original_hw": size,
        "resized_hw": size,
        "original_wh": size[:, ::-1],
        "scale_hw": np.ones((1, 2)),
        "resized_hw_scale": np.array([[*shape[-2:], 1.0]]),
    }
    number = shape[0] if len(shape) == 4 else 1
    feeds = {image.name: np.ascontiguousarray(np.moveaxis(noise, -3, -1) if inputs.channels_last else noise)}
    feeds[image.name] = feeds[image.name].astype(image.dtype)
    for tensor, meaning in inputs.further:
        of_image = np.ones((1, *shape[-2:])) if meaning == PIXEL_MASK else values[meaning]
        feeds[tensor.name] = np.repeat(of_image, number, axis=0).astype(tensor.dtype)
    return feeds


class Sizes(NamedTuple):
    """The sizes that nodes know of the images in a batch: heights and widths (N, 2), or (1, 2) of all."""

    resized: Value
    """Of the resized image without its padding, int64."""
    scale: Value | None
    """The factors by which the original image was resized, float32; None if nothing asks for them."""


def replace_inputs(
    graph: onnx.GraphProto, inputs: Inputs, op: FunctionBuilder, *, needs_scale: bool, is_padded: bool
) -> tuple[onnx.ValueInfoProto, Sizes | None]:
    """Give a graph mmort's inputs, and add the nodes that make the file's own of them.

    Parameters
    ----------
    graph : onnx.GraphProto
        Changed in place.
    inputs : Inputs
    op : FunctionBuilder
    needs_scale : bool
        Whether the boxes are in pixels of the original image.
    is_padded : bool
        Whether images may have a padding, so that their sizes are not that of the input.

    Returns
    -------
    input : onnx.ValueInfoProto
        The image, float32 (N, 3, H, W).
    sizes : Sizes or None
        None if neither an input nor the boxes need them.
    """
    input = next(value for value in graph.input if value.name == inputs.image.name)
    _replace_image(graph, input, inputs, op)
    if not inputs.further and not needs_scale:
        return input, None
    names = {
        name: f"mmort/adopt/original_{name}"
        for name in (IMG_SHAPE.name, ORI_SHAPE.name, *(tensor.name for tensor, _ in inputs.further))
    }
    structure.rename(graph, names)
    meanings = {meaning for _, meaning in inputs.further}
    number = input.type.tensor_type.shape.dim[0]
    sizes = [number.dim_value or number.dim_param or None, 2]
    whole = op.Reshape(op.Slice(op.Shape(Value(op, input.name)), [2], [4], [0]), [1, 2])
    resized = whole
    kept = [value for value in graph.input if value.name not in names]
    if PIXEL_MASK in meanings:
        kept.append(onnx.helper.make_tensor_value_info(IMG_SHAPE.name, INT64, sizes))
        resized = Value(op, IMG_SHAPE.name)
    elif is_padded:
        resized = _stated_or(_optional(graph, kept, IMG_SHAPE.name, sizes, op), whole, op)
    scale = None
    if needs_scale or meanings & {"original_wh", "original_hw", "scale_hw", "resized_hw_scale"}:
        original = _stated_or(_optional(graph, kept, ORI_SHAPE.name, sizes, op), resized, op)
        scale = resized.to(FLOAT) / original.to(FLOAT)
    del graph.input[:]
    graph.input.extend(kept)
    batch = op.Slice(op.Shape(Value(op, input.name)), [0], [1], [0])
    for tensor, meaning in inputs.further:
        if meaning == PIXEL_MASK:
            value = _pixel_mask(input, op)
        else:
            value = _of_sizes(meaning, resized, None if scale is None else original, scale, op)
            columns = 3 if meaning == "resized_hw_scale" else 2
            value = op.Expand(value, op.Concat(batch, [columns], axis=0))
        node = onnx.helper.make_node(
            "Cast", [value.handle], [names[tensor.name]], op.name("input"), to=_DTYPES[tensor.dtype]
        )
        op.nodes.append(node)
    return input, Sizes(resized, scale)


def _replace_image(graph: onnx.GraphProto, input: onnx.ValueInfoProto, inputs: Inputs, op: FunctionBuilder) -> None:
    """Let a graph take an image of float32 (N, 3, H, W), and add the nodes that make its own of it."""
    image = inputs.image
    dims = input.type.tensor_type.shape.dim
    sizes = [size.dim_value or size.dim_param or None for size in dims]
    if inputs.channels_last:
        sizes = [*sizes[:-3], sizes[-1], *sizes[-3:-1]]
    rank, value = len(sizes), Value(op, input.name)
    if image.dtype == "uint8":
        value = op.Round(value)
    if image.dtype != "float32":
        value = value.to(IMAGE_DTYPES[image.dtype])
    if rank == 3:
        value = op.Gather(value, np.array(0), axis=0)
    if inputs.channels_last:
        value = op.Transpose(value, perm=[0, 2, 3, 1] if rank == 4 else [1, 2, 0])
    if value.handle != input.name:
        structure.rename(graph, {input.name: value.handle})
    sizes = sizes if rank == 4 else [1, *sizes]
    sizes[1] = 3
    input.CopyFrom(onnx.helper.make_tensor_value_info(input.name, FLOAT, sizes))


def _optional(
    graph: onnx.GraphProto, kept: list[onnx.ValueInfoProto], name: str, sizes: Sequence[Any], op: FunctionBuilder
) -> Value:
    """Add an input of sizes that may be left out, and is 0 then."""
    kept.append(onnx.helper.make_tensor_value_info(name, INT64, sizes))
    number = sizes[0] if isinstance(sizes[0], int) else 1
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((number, 2), np.int64), name))
    return Value(op, name)


def _stated_or(stated: Value, other: Value, op: FunctionBuilder) -> Value:
    """Return stated sizes, and others where these are 0."""
    return op.Where(stated > np.array(0), stated, other)


def _of_sizes(meaning: str, resized: Value, original: Value | None, scale: Value | None, op: FunctionBuilder) -> Value:
    """Return the values of an input with a meaning."""
    if meaning == "resized_hw":
        return resized
    assert original is not None
    assert scale is not None
    if meaning == "original_hw":
        return original
    if meaning == "original_wh":
        return op.Gather(original, [1, 0], axis=1)
    if meaning == "scale_hw":
        return scale
    return op.Concat(resized.to(FLOAT), op.Slice(scale, [0], [1], [1]), axis=1)


def _pixel_mask(input: onnx.ValueInfoProto, op: FunctionBuilder) -> Value:
    """Return whether each pixel of a batch is an image's, (N, H, W), from the heights and widths of the images."""
    img_shape, shape = Value(op, IMG_SHAPE.name), op.Shape(Value(op, input.name))

    def inside(axis: int, form: list[int]) -> Value:
        """Return which rows or columns the images have, in the form of a mask."""
        numbers = op.Range(np.array(0), op.Gather(shape, np.array(axis)), np.array(1))
        limits = op.Slice(img_shape, [axis - 2], [axis - 1], [1])
        return op.Reshape(op.Reshape(numbers, [1, -1]) < limits, form)

    return inside(2, [0, -1, 1]) & inside(3, [0, 1, -1])
