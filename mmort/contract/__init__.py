"""The contract of mmort's files: inputs, outputs and metadata, with their meaning for images, masks and words.

`read` reads the contract of a file that ONNX Runtime, onnx or another engine has opened, `write` writes the metadata
into a model, and `check` compares a model with the table of tasks.  No other package writes a name of an input, an
output or an entry.  numpy is enough for all of it; resizing images and masks needs OpenCV.
"""

from mmort.contract.detector import DetectorContract, check, read, write
from mmort.contract.interface import Argument, Interface
from mmort.contract.line_height import LineHeight
from mmort.contract.mask_format import MaskFormat
from mmort.contract.metadata import VERSION, Metadata, read_metadata, write_entries
from mmort.contract.padding import Padding
from mmort.contract.pose_format import PoseFormat
from mmort.contract.preprocessing import Prepared, Preprocessing
from mmort.contract.recognition_format import RecognitionFormat
from mmort.contract.segmentation_format import SegmentationFormat
from mmort.contract.tasks import (
    BOXES,
    CLASSIFICATION,
    DETECTION,
    POSE,
    SEGMENTATION,
    TASKS,
    TEXT_DETECTION,
    TEXT_RECOGNITION,
    WITH_KEYPOINTS,
    WITH_MASKS,
    WITH_SEMANTIC,
    Task,
    Tensor,
)
from mmort.contract.text_detection_format import TextDetectionFormat
from mmort.contract.text_kernels_format import TextKernelsFormat
from mmort.contract.texts import EncoderFile, path_of_encoder

__all__ = [
    "BOXES",
    "CLASSIFICATION",
    "DETECTION",
    "POSE",
    "SEGMENTATION",
    "TASKS",
    "TEXT_DETECTION",
    "TEXT_RECOGNITION",
    "VERSION",
    "WITH_KEYPOINTS",
    "WITH_MASKS",
    "WITH_SEMANTIC",
    "Argument",
    "DetectorContract",
    "EncoderFile",
    "Interface",
    "LineHeight",
    "MaskFormat",
    "Metadata",
    "Padding",
    "PoseFormat",
    "Prepared",
    "Preprocessing",
    "RecognitionFormat",
    "SegmentationFormat",
    "Task",
    "Tensor",
    "TextDetectionFormat",
    "TextKernelsFormat",
    "check",
    "path_of_encoder",
    "read",
    "read_metadata",
    "write",
    "write_entries",
]
