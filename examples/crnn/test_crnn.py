"""The recognizer: ONNX Runtime computes what torch computes, and it reads."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from export import export
from model import CRNN, load
from reader import ALPHABET, BLANK, Predictor, greedy

HERE = Path(__file__).parent


def naive_greedy(scores):
    texts = []
    for n in range(scores.shape[1]):
        text, previous = "", BLANK
        for t in range(scores.shape[0]):
            best = int(np.argmax(scores[t, n]))
            if best not in (previous, BLANK):
                text += ALPHABET[best - 1]
            previous = best
        texts.append(text)
    return texts


@pytest.mark.parametrize("shape", [(1, 1), (40, 1), (7, 5), (30, 20), (0, 2), (5, 0)])
def test_greedy(shape):
    rng = np.random.default_rng(0)
    for classes in (11, 3):  # few classes give long runs
        scores = np.full((*shape, 11), -9.0, np.float32)
        scores[..., :classes] = rng.standard_normal((*shape, classes))
        assert greedy(scores) == naive_greedy(scores)


def test_greedy_by_hand():
    columns = [0, 3, 3, 0, 3, 4, 4, 0, 0, 1]
    assert greedy(np.eye(11)[columns][:, None]) == ["2230"]
    assert greedy(np.eye(11)[[0, 0, 0]][:, None]) == [""]
    assert greedy(np.eye(11)[[2, 2]][:, None]) == ["1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("crnn") / "crnn.onnx"
    model = load(HERE / "weights.npz")
    export(model, path)
    return model, path


def assert_same_scores(model, path, sizes):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(0)
    for batch, width in sizes:
        image = torch.rand(batch, 1, 32, width, generator=generator)
        (scores,) = session.run(None, {"image": image.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(scores), model(image), rtol=1e-3, atol=1e-4)


def test_widths_and_batches(trained):
    assert_same_scores(*trained, [(1, 4), (1, 31), (2, 32), (3, 97), (5, 160), (1, 1000)])


def test_random_weights_of_another_size(tmp_path):
    torch.manual_seed(0)
    model = CRNN(characters=36, channels=5, hidden=7).eval()
    export(model, tmp_path / "random.onnx")
    assert_same_scores(model, tmp_path / "random.onnx", [(1, 9), (4, 64), (2, 333)])


def lines():
    """Return lines of digits that the network has not seen, each with its text."""
    with np.load(HERE / "lines.npz") as data:
        return [(data[text][0].astype(np.float32) / 255, text) for text in data]


def test_reads(trained):
    model, path = trained
    reader = Predictor(path)
    assert len(lines()) >= 10
    right = 0
    for line, text in lines():
        with torch.no_grad():
            pixels = -line.shape[1] % 32
            padded = np.pad(line, ((0, 0), (0, pixels)), constant_values=np.median(line))
            assert reader(line) == greedy(model(torch.from_numpy(padded)[None, None]).numpy())[0]
        right += reader(line) == text
    assert right >= 0.8 * len(lines())


def test_each_size_is_bound_once(trained):
    reader = Predictor(trained[1])
    texts = [reader(line) for line, _ in lines()]
    bound = dict(reader._bound)
    assert sorted(bound) == sorted({-(-line.shape[1] // 32) * 32 for line, _ in lines()})
    assert [reader(line) for line, _ in reversed(lines())] == texts[::-1]
    assert all(reader._bound[width] is memory for width, memory in bound.items())


@pytest.mark.parametrize("shape", [(31, 40), (32, 0), (1, 32, 40)])
def test_wrong_shapes_are_refused(trained, shape):
    with pytest.raises(ValueError, match=r"^a line must be \[32, W\]"):
        Predictor(trained[1])(np.zeros(shape, np.float32))
