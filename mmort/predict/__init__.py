"""Detection in images with an exported detector, without torch.

`Predictor` runs a detector on images, in the engine that `OnnxRuntime` or `OpenVino` stands for, here or on `Ray`;
`Detections` are the results in one, and files of classifiers, of semantic segmentations, of text detections and of text
recognitions give `Classes`, a `SegmentationMap`, `TextRegions` and a `RecognizedText`; `PosePredictor` runs files of
poses, and a detector that finds whom they are of; `TextReader` detects and reads texts; `predict_windows` detects in
large ones;
`predict` records and draws what is in many, or in a video, and resumes.
`Preprocessing` turns an image into the network's input, as the config's test pipeline does; `paste_masks` pastes masks
into the image; `draw` and `contact_sheet` draw detections.  Images need OpenCV, running a file ONNX Runtime or
OpenVINO; the rest needs numpy only.
"""

from mmort.contract.mask_format import MaskFormat
from mmort.contract.padding import Padding
from mmort.contract.preprocessing import Prepared, Preprocessing
from mmort.detections.classes import Classes
from mmort.detections.detections import Detections
from mmort.detections.drawable import Drawable
from mmort.detections.drawing import contact_sheet, draw
from mmort.detections.masks import BoxMasks, ImageMasks, paste_masks
from mmort.detections.panoptic import PanopticFormat
from mmort.detections.recognized_text import RecognizedText
from mmort.detections.segmentation_map import SegmentationMap
from mmort.detections.skeleton import Skeleton
from mmort.detections.text_regions import TextRegions
from mmort.images import read_image, write_image
from mmort.predict.benchmarking import Benchmark, Timing, benchmark
from mmort.predict.engines.network import DetectorFile, Network
from mmort.predict.engines.onnxruntime import OnnxRuntime
from mmort.predict.engines.openvino import OpenVino
from mmort.predict.engines.ray import Ray
from mmort.predict.fixed_size import FixedSizeWarning
from mmort.predict.image_files import LeftOutWarning, list_images
from mmort.predict.output import AnnotatedImages, Record, to_line
from mmort.predict.poses import PosePredictor
from mmort.predict.predicting import Outcome, PredictOptions, PredictResult, predict
from mmort.predict.predictor import Predictor
from mmort.predict.text_reading import TextReader
from mmort.predict.windows import Windows, predict_windows

__all__ = [
    "AnnotatedImages",
    "Benchmark",
    "BoxMasks",
    "Classes",
    "Detections",
    "DetectorFile",
    "Drawable",
    "FixedSizeWarning",
    "ImageMasks",
    "LeftOutWarning",
    "MaskFormat",
    "Network",
    "OnnxRuntime",
    "OpenVino",
    "Outcome",
    "Padding",
    "PanopticFormat",
    "PosePredictor",
    "PredictOptions",
    "PredictResult",
    "Predictor",
    "Prepared",
    "Preprocessing",
    "Ray",
    "RecognizedText",
    "Record",
    "SegmentationMap",
    "Skeleton",
    "TextReader",
    "TextRegions",
    "Timing",
    "Windows",
    "benchmark",
    "contact_sheet",
    "draw",
    "list_images",
    "paste_masks",
    "predict",
    "predict_windows",
    "read_image",
    "to_line",
    "write_image",
]
