"""Every bound on what comes from strangers: configs, checkpoints, ONNX files, images, videos, annotations, texts.

A constant stands here with what it bounds and why, and docs/limits.md has a table of them.  Bounds of operators are in
the kernels, where numpy, torch and ONNX Runtime share them; sizes of blocks, of messages and of what a user asks for
are where they are used.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

Number = TypeVar("Number", int, float)


class Limit(NamedTuple):
    """A bound on input."""

    name: str
    """Of the constant in this module."""
    value: float
    unit: str
    bounds: str
    """The input that is refused above `value`."""
    reason: str


LIMITS: list[Limit] = []
"""All of them, in the order of docs/limits.md."""


def _limit(name: str, value: Number, unit: str, bounds: str, reason: str) -> Number:
    """Add a bound to `LIMITS`; return its value."""
    LIMITS.append(Limit(name, value, unit, bounds, reason))
    return value


# Configs

MAX_CONFIG_BYTES = _limit(
    "MAX_CONFIG_BYTES",
    128_000,
    "bytes",
    "a config, or a base of one",
    "the largest published one has 29,440",
)
MAX_CONFIG_STEPS = _limit(
    "MAX_CONFIG_STEPS",
    2_000_000,
    "steps",
    "reading a config with all that it inherits from",
    "about 1.5 seconds; the largest published one, GLIP's of MMDetection 3.3.0, takes 848,193",
)
MAX_CONFIG_DEPTH = _limit(
    "MAX_CONFIG_DEPTH",
    100,
    "levels",
    "containers within containers",
    "what reads them recursively needs Python's stack",
)
MAX_CONFIG_INTEGER_BITS = _limit(
    "MAX_CONFIG_INTEGER_BITS",
    64,
    "bits",
    "an integer of a config",
    "larger ones can be made to collide in every dict",
)
MAX_INHERITED_CONFIGS = _limit(
    "MAX_INHERITED_CONFIGS", 20, "configs", "a chain of bases", "a config could inherit from itself"
)
MAX_YAML_NUMBER = _limit(
    "MAX_YAML_NUMBER", 100, "characters", "a number in a config in YAML", "PyYAML takes quadratic time for 1:2:3..."
)
MAX_WEIGHTS = _limit(
    "MAX_WEIGHTS", 8_000, "tensors", "the model of a config", "published detectors have some thousands at most"
)

# Words

MAX_WORD_CHARACTERS = _limit(
    "MAX_WORD_CHARACTERS",
    100,
    "characters",
    "a word of a caption; and the caption, for each of the detector's `max_tokens`",
    "BERT knows no longer word, and length is checked before words are counted",
)

MAX_NAMES = _limit(
    "MAX_NAMES",
    2**14,
    "names",
    "texts that a detector looks for",
    "each takes a tenth of a millisecond; the largest data set, V3Det, has 13,204",
)

# ONNX files

MAX_EXPANDED_NODES = _limit(
    "MAX_EXPANDED_NODES",
    20_000,
    "nodes",
    "a graph whose functions are expanded, unless the file has a tenth as many",
    "ONNX Runtime takes 2 seconds",
)
MAX_NODE_EXPANSION = _limit(
    "MAX_NODE_EXPANSION", 10, "times the file's nodes", "the same graph", "large files may have functions, too"
)
MAX_FIELDS = _limit(
    "MAX_FIELDS",
    3 * 2**20,
    "fields",
    "a file with functions, as protobuf counts them; beginning a message counts as eight",
    "2 seconds, and some 50,000 nodes",
)
MAX_RANDOM_ELEMENTS = _limit(
    "MAX_RANDOM_ELEMENTS",
    2**26,
    "elements",
    "random inputs of `verify`, `accelerate` and `adopt` of the sizes that a file states; not of `--sizes`",
    "a small file may state any sizes",
)
MAX_BATCH_PIXELS = _limit(
    "MAX_BATCH_PIXELS", 2**26, "pixels", "a batch that is padded to the sizes that a file fixes", "800 MB"
)
MAX_EXPANDED_BYTES = _limit(
    "MAX_EXPANDED_BYTES",
    2**28,
    "bytes",
    "the arrays of an `.npz` file, unless the file has a tenth as many",
    "a small file may be compressed a thousandfold",
)
MAX_BYTE_EXPANSION = _limit(
    "MAX_BYTE_EXPANSION",
    10,
    "times the file's bytes",
    "the same arrays",
    "`numpy.savez` compresses nothing",
)

# The metadata of detectors

MAX_ENTRY_CHARACTERS = _limit(
    "MAX_ENTRY_CHARACTERS",
    2**22,
    "characters",
    "an entry of a file's metadata, such as the classes",
    "the names of 20,000 classes have a tenth",
)
MAX_CONTRACT_VERSION = _limit(
    "MAX_CONTRACT_VERSION",
    999_999,
    "",
    "the version of the metadata",
    "there will be no more",
)
MAX_INPUT_PIXELS = _limit(
    "MAX_INPUT_PIXELS",
    2**24,
    "pixels",
    "sizes in a file's metadata (`size`, `padding.size`)",
    "4096 x 4096: 200 MB as the network's input",
)
MAX_CHANNELS = _limit(
    "MAX_CHANNELS",
    16,
    "channels",
    "an image, and the input of a file",
    "an input has `MAX_INPUT_PIXELS` of each; satellites have 13 bands",
)
MAX_PADDING_STEP = _limit(
    "MAX_PADDING_STEP",
    2**12,
    "pixels",
    "steps of padding and of masks in a file's metadata (`size_divisor`, `pad_or`, `pad_add`, `stride`)",
    "a side is padded by no more",
)
MAX_RESIZED_PIXELS = _limit(
    "MAX_RESIZED_PIXELS",
    2**24,
    "pixels",
    "what a config's test pipeline resizes to, and an image whose shorter side becomes `edge`, unless it had more",
    "as `MAX_INPUT_PIXELS`; the longer side of a line of pixels could take any amount of memory",
)
MAX_PADDED_PIXELS = _limit(
    "MAX_PADDED_PIXELS",
    2**24,
    "pixels",
    "an image after its padding, unless it is twice the resized one or less",
    "a narrow image that is padded to a square could take any amount of memory",
)
MAX_PADDING_RATIO = _limit(
    "MAX_PADDING_RATIO", 2, "times the resized image's pixels", "the same image", "large images are padded, too"
)
MAX_ENLARGED_PIXELS = _limit(
    "MAX_ENLARGED_PIXELS",
    2**24,
    "pixels",
    "a mask before it is cut to the image, unless the image has a 16th as many",
    "metadata may state any part of a mask as the image's",
)
MAX_ENLARGEMENT = _limit(
    "MAX_ENLARGEMENT",
    16,
    "times the image's pixels",
    "the same mask",
    "an image may be a small part of its input",
)

# Files of other exporters

MAX_PREPROCESSOR_BYTES = _limit(
    "MAX_PREPROCESSOR_BYTES",
    2**24,
    "bytes",
    "a file of transformers or PaddleDetection for `adopt --config`",
    "it is held in memory",
)
MAX_LAYOUT_BYTES = _limit("MAX_LAYOUT_BYTES", 2**24, "bytes", "a JSON file of a layout", "it is held in memory")
MAX_LITERAL = _limit(
    "MAX_LITERAL",
    2**18,
    "characters",
    "a value in Python's notation in the metadata of ultralytics (`names`, `args`)",
    "Python's parser takes 500 bytes for each; 10,000 names have fewer",
)
MAX_PARTS = _limit(
    "MAX_PARTS",
    32,
    "outputs",
    "outputs of a layout whose rows follow each other",
    "a file has one for each of its levels, and each takes nodes of the graph",
)
MAX_DETECTIONS = _limit(
    "MAX_DETECTIONS", 2**31 - 1, "boxes", "the boxes of a layout (`max_detections`)", "ONNX's integers end above"
)

# Images and videos

MAX_IMAGE_BYTES = _limit("MAX_IMAGE_BYTES", 2**31 - 1, "bytes", "an image file", "OpenCV decodes no more")
MAX_DECODING_BYTES = _limit(
    "MAX_DECODING_BYTES",
    500_000_000,
    "bytes",
    "memory for decoding an image, unless its file has a 200th as many; OpenCV's variable "
    "`OPENCV_IO_MAX_IMAGE_PIXELS`, if it is set, replaces both",
    "a file of some bytes may state 2**40 pixels",
)
MAX_DECODING_RATIO = _limit(
    "MAX_DECODING_RATIO", 200, "times the file's bytes", "the same memory", "photos and maps need it"
)
MAX_STANDARD_INPUT = _limit(
    "MAX_STANDARD_INPUT", 2**28, "bytes", "an image on standard input", "it is held in memory, and could have no end"
)
MAX_FRAME_PIXELS = _limit(
    "MAX_FRAME_PIXELS", 2**26, "pixels", "a frame of a video, as the file states it", "8192 x 8192; 8K has half as many"
)
MAX_FRAME_RATE = _limit(
    "MAX_FRAME_RATE",
    1000,
    "frames per second",
    "the frame rate that a video states; above, 25 are taken",
    "a damaged header",
)
MAX_SKIPPED_FRAMES = _limit(
    "MAX_SKIPPED_FRAMES",
    1000,
    "frames",
    "frames looked for behind one that cannot be read; more are not",
    "a file may state 2**31",
)
MAX_BOXES = _limit(
    "MAX_BOXES",
    2**16,
    "boxes",
    "boxes of an MP4 file that tell its size; more are not read",
    "each is a read of the disk",
)
MAX_CAMERA = _limit("MAX_CAMERA", 2**31 - 1, "", "the number of a camera", "OpenCV's integers")

# Annotations

MAX_PATH = _limit("MAX_PATH", 2**12, "characters", "a path or a name of an image in annotations", "Linux takes no more")
MAX_ANNOTATED_PIXELS = _limit(
    "MAX_ANNOTATED_PIXELS",
    2**30,
    "pixels",
    "an image in COCO's annotations",
    "OpenCV decodes no more",
)
MAX_COCO_COORDINATE = _limit(
    "MAX_COCO_COORDINATE", 2.0**31, "pixels", "edges of boxes in COCO's annotations", "larger numbers are not pixels"
)
MAX_POLYGON_RATIO = _limit(
    "MAX_POLYGON_RATIO",
    2,
    "times the image's longer side",
    "polygons in COCO's annotations",
    "they are drawn",
)
MAX_CORNER = _limit(
    "MAX_CORNER", 2.0**24, "pixels", "corners in VOC's and DOTA's annotations", "float32 has no fractions beyond"
)
MAX_SEGMENT_ID = _limit(
    "MAX_SEGMENT_ID", 256**3 - 1, "", "the id of a panoptic segment", "the colour of a pixel in three bytes"
)
MAX_SCORE_THRESHOLDS = _limit(
    "MAX_SCORE_THRESHOLDS",
    1000,
    "scores",
    "thresholds of a config's metric of texts, `pred_score_thrs`",
    "each counts the texts of all images once more",
)

# Calls

MAX_WINDOWS = _limit(
    "MAX_WINDOWS",
    10_000,
    "windows",
    "the windows of an image that a segmentation's metadata ask for",
    "each is a run of the network",
)
MAX_THREADS = _limit(
    "MAX_THREADS",
    1024,
    "threads",
    "threads of a detector, and batches at the same time",
    "each takes memory, and seconds when there are too many",
)
MAX_REPEATED = _limit(
    "MAX_REPEATED",
    1024,
    "samples",
    "samples of a bin's side or a border, and padding, of functions of `mmcv._ext`",
    "memory grows with them; the operators of `mmort.torch` take as many",
)
MAX_KERNEL_ELEMENTS = _limit(
    "MAX_KERNEL_ELEMENTS", 2**14, "elements", "the window of `mmcv._ext.correlation_forward`", "work for each output"
)
