"""Files in two sessions return what they do in one, and run once what the varied inputs do not reach."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from mmort.predict.engines.splitting import SplitSession, split_session

MODEL = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
graph (float[N, C] image, float[T] word, float[1] scale) => (float[N, C] y, int64 count, float[T] loud)
  <float[1] scale = {2.0}, float[1] unused = {1.0}>
{
  two = Constant <value_float = 2.0> ()
  noise = RandomUniformLike (image)
  noisy = Add (image, noise)
  shape = Shape (noisy)
  mean = ReduceMean <keepdims = 0> (noisy)
  bright = Greater (mean, two)
  sum = ReduceSum <keepdims = 0> (word)
  product = local.scaled (noisy, scale)
  chosen = If (bright) <
    then_branch = brighter () => (float[N, C] a) { a = Mul (product, sum) },
    else_branch = darker () => (float[N, C] b) {
      doubled = Mul (noisy, two)
      b = Add (doubled, sum)
    }
  >
  y = Div (chosen, scale)
  first = Constant <value_int = 0> ()
  rows = Gather (shape, first)
  words = Shape (word)
  added = Add (rows, words)
  count = Squeeze (added)
  loud = Mul (word, two)
  image_only = Sub (noisy, two)
}
<domain: "local", opset_import: ["" : 17]>
scaled (x, by) => (out) { out = Mul (x, by) }
"""


def open_session(model):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.fixture
def model():
    return onnx.parser.parse_model(MODEL)


WORDS = [{"word": np.arange(count, dtype=np.float32)} for count in (2, 5, 1)]


@pytest.mark.parametrize("level", [0.0, 9.0], ids=["dark", "bright"])
@pytest.mark.parametrize("scale", [None, 4.0])
def test_the_same_outputs(model, level, scale):
    (noise,) = (node for node in model.graph.node if node.op_type == "RandomUniformLike")
    noise.op_type = "Sign"
    whole = open_session(model.SerializeToString())
    split = SplitSession(model, ["word"], ["count", "y", "loud"], open_session)
    feeds = {"image": np.full((3, 2), level, np.float32)}
    if scale is not None:
        feeds["scale"] = np.array([scale], np.float32)
    for words, outputs in zip(WORDS, split.run(feeds, WORDS), strict=True):
        expected = whole.run(["count", "y", "loud"], {**feeds, **words})
        assert all(map(np.array_equal, outputs, expected))


def test_what_is_not_reached_runs_once(model):
    split = SplitSession(model, ["word"], ["y"], open_session)
    feeds = {"image": np.full((3, 2), 9, np.float32)}
    words = [{"word": np.array([value], np.float32)} for value in (1, 2)]
    (one,), (two,) = split.run(feeds, words)
    assert np.array_equal(2 * one, two)
    ((again,),) = split.run(feeds, words[:1])
    assert not np.array_equal(one, again)


def test_nothing_is_shared(model):
    split = SplitSession(model, ["word"], ["loud"], open_session)
    assert [loud.tolist() for (loud,) in split.run({"image": np.zeros((1, 1), np.float32)}, WORDS[:1])] == [[0, 2]]


def test_tensors_in_files_beside_it(model, tmp_path):
    path = str(tmp_path / "model.onnx")
    for tensor in model.graph.initializer:
        tensor.raw_data = numpy_helper.to_array(tensor).tobytes()
        tensor.ClearField("float_data")
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    assert split_session(path, ["word"], ["y"], open_session) is None
