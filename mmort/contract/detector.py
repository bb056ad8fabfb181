"""`DetectorContract`: what a file takes, returns and states; read of files, written into models, and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmort.contract.interface import Argument, Interface
from mmort.contract.metadata import Metadata, read_metadata, write_entries
from mmort.contract.tasks import IMG_SHAPE, INPUT, MASKS, ORI_SHAPE, PROPOSALS, SIZES, TASKS, TEXT_INPUTS, Tensor

ADVICE = "mmort adopt MODEL.onnx --output FILE.onnx lets mmort run detectors of other exporters"
"""Advice for a file that has other inputs or outputs."""


@dataclass(frozen=True)
class DetectorContract:
    """The inputs, outputs and metadata of a detector's file.

    Attributes
    ----------
    image : Argument
        The input with the images, which has other names in files of other tools.
    inputs : tuple of str
        The further inputs of the table that the file takes.
    outputs : tuple of str
        Those of the table that the file has, in the order in which networks return them.
    metadata : Metadata
    """

    image: Argument
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    metadata: Metadata

    @property
    def input_shape(self) -> tuple[int | None, int | None, int | None]:
        """Number, height and width of the images in a batch; None where any is accepted."""
        number, _, height, width = self.image.fixed_sizes
        return number, height, width

    @property
    def takes_img_shape(self) -> bool:
        """Whether the heights and widths of images are an input."""
        return IMG_SHAPE.name in self.inputs

    @property
    def is_adopted(self) -> bool:
        """Whether ``mmort adopt`` made the file.

        Other exporters than MMDetection do not pad a batch, and their labels follow names, not a data set's order.
        """
        return self.metadata.layout is not None

    @property
    def takes_ori_shape(self) -> bool:
        """Whether the heights and widths of the original images are an input."""
        return ORI_SHAPE.name in self.inputs

    @property
    def takes_proposals(self) -> bool:
        """Whether proposals are an input."""
        return PROPOSALS.name in self.inputs

    @property
    def takes_texts(self) -> bool:
        """Whether the words that the detector looks for are inputs."""
        return self.metadata.texts is not None

    @property
    def has_masks(self) -> bool:
        """Whether the file has masks."""
        return MASKS.name in self.outputs


def read(path: str, interface: Interface) -> DetectorContract:
    """Read the contract of a file.

    Parameters
    ----------
    path : str
        Of the file, for messages.
    interface : Interface
        The inputs and outputs that it has.

    Raises
    ------
    ValueError
        If the metadata cannot be read, or inputs and outputs are not those of the metadata's task.

    Examples
    --------
    >>> from mmort.contract import WITH_MASKS, Interface, read
    >>> from mmort.demo import MODEL
    >>> import mmort.ort
    >>> contract = read("mask_rcnn.onnx", Interface.of_session(mmort.ort.session(MODEL)))
    >>> contract.outputs == WITH_MASKS, contract.takes_img_shape, contract.metadata.family
    (True, True, 'Mask R-CNN')
    """
    metadata = read_metadata(path, interface.metadata)
    task = TASKS[metadata.task]
    names = {argument.name for argument in interface.inputs}
    further = {PROPOSALS.name, *(TEXT_INPUTS if metadata.texts is not None else ())}
    if metadata.texts is not None and not set(TEXT_INPUTS) <= names:
        missing = min(set(TEXT_INPUTS) - names)
        raise ValueError(f"{path}: a detector whose metadata has texts must have the input {missing}")
    sizes = {tensor.name for tensor in SIZES}
    further |= {tensor.name for tensor in SIZES if _takes(interface, tensor)}
    images = [argument for argument in interface.inputs if argument.name not in further | sizes]
    channels = 3 if metadata.preprocessing is None else metadata.preprocessing.channels
    if (
        len(images) != 1
        or images[0].dtype != INPUT.dtype
        or not INPUT.has_shape(images[0].fixed_sizes, {"C": channels})
    ):
        taken = ", ".join(map(str, images))
        raise ValueError(
            f"{path}: a detector takes one input, float32 [N, {channels}, H, W], but this model takes {taken}; {ADVICE}"
        )
    outputs = task.outputs_among([output.name for output in interface.outputs])
    if outputs is None:
        required = task.forms[0]
        extra = ", ".join(tensor.name for tensor in task.outputs if tensor.name not in required)
        raise ValueError(
            f"{path}: the outputs are {', '.join(output.name for output in interface.outputs)} instead of "
            f"{', '.join(required)}{extra and f' and perhaps {extra}'}; a file exported with --skip-postprocess has "
            f"the network's raw outputs; {ADVICE}"
        )
    inputs = tuple(tensor.name for tensor in task.inputs if tensor.name in names & further)
    return DetectorContract(images[0], inputs, outputs, metadata)


def takes_img_shape(interface: Interface) -> bool:
    """Return whether a file takes the heights and widths of images; a weight may have the name of that input."""
    return _takes(interface, IMG_SHAPE)


def _takes(interface: Interface, tensor: Tensor) -> bool:
    """Return whether a file has an input of the table."""
    return any(argument.name == tensor.name and argument.dtype == tensor.dtype for argument in interface.inputs)


def write(model: Any, metadata: Metadata) -> None:
    """Write metadata into an ``onnx.ModelProto``; entries of other tools stay.

    Examples
    --------
    >>> import onnx
    >>> from mmort.contract import Metadata, write
    >>> model = onnx.ModelProto()
    >>> write(model, Metadata(family="FCOS"))
    >>> [entry.key for entry in model.metadata_props]
    ['family', 'mmort_contract']
    """
    entries = {entry.key: entry.value for entry in model.metadata_props} | write_entries(metadata)
    del model.metadata_props[:]
    for name, text in entries.items():
        model.metadata_props.add(key=name, value=text)


def check(path: str, model: Any) -> DetectorContract:
    """Check that a model which is to be written is a file of mmort, and return its contract.

    Raises
    ------
    ValueError
        If it cannot be read, or a dtype or size is not that of the table of tasks.
    """
    interface = Interface.of_model(model)
    contract = read(path, interface)
    task, numbers = TASKS[contract.metadata.task], dict[str, int]()
    tensors = {tensor.name: tensor for tensor in (*task.inputs, *task.outputs)}
    for argument in (*interface.inputs, *interface.outputs):
        tensor = INPUT if argument is contract.image else tensors.get(argument.name)
        if tensor is None:
            continue
        if argument.dtype != tensor.dtype or (
            argument.shape is not None and not tensor.has_shape(argument.shape, numbers)
        ):
            raise ValueError(f"{path}: {argument.name} must be {tensor.dtype} {tensor.text()}, got {argument}")
    return contract
