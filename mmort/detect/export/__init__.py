"""Export of detectors to ONNX files, the function behind ``mmort export``.

`pipeline` has the steps in order; `examples` makes the inputs that a file is traced and compared with, `wrappers` and
`graph_masks` give the file its inputs and outputs, `finishing` its optional input and its metadata.
"""

from mmort.detect.export.pipeline import export

__all__ = ["export"]
