"""Predicting and evaluating on a Ray cluster of two nodes equals doing so in this process."""

import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import ray
import ray.data
from ray.cluster_utils import Cluster

from mmort import Predictor
from mmort.demo import ANNOTATIONS, IMAGES, MODEL
from mmort.onnx import make_portable
from mmort.predict import OnnxRuntime, OpenVino, PredictOptions, Ray, Windows, predict
from mmort.predict.engines.ray import MAX_RETRIES

pytestmark = [  # of Ray itself
    pytest.mark.filterwarnings("default::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each; this process is connected."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def photos(tmp_path):
    """150 pictures, one of which is broken."""
    paths = [tmp_path / f"{number:03}.png" for number in range(150)]
    for number, path in enumerate(paths):
        shutil.copy(IMAGES[number % len(IMAGES)], path)
    paths[7].write_bytes(b"broken")
    return paths


def text(outcome):
    return str(outcome) if isinstance(outcome, Exception) else outcome.to_json()


def assert_same(outcomes, expected):
    assert list(map(text, outcomes)) == list(map(text, expected))
    for outcome, other in zip(outcomes, expected, strict=True):
        if not isinstance(outcome, Exception):
            np.testing.assert_array_equal(outcome.boxes, other.boxes)
            np.testing.assert_array_equal(outcome.masks, other.masks)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_equals_this_process(cluster, photos, batch_size):
    network = OnnxRuntime(MODEL, threads=1)
    expected = list(Predictor(network, score_threshold=0).predict(photos, batch_size, return_exceptions=True))
    predictor = Predictor(Ray(network), score_threshold=0)
    detections = list(predictor.predict(photos, batch_size, return_exceptions=True))
    assert [index for index, outcome in enumerate(detections) if isinstance(outcome, ValueError)] == [7]
    assert_same(detections, expected)


def test_a_broken_picture_is_raised(cluster, photos):
    """And Ray Data's settings are the caller's again."""
    context = ray.data.DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    outcomes = Predictor(Ray(MODEL), score_threshold=0).predict(photos)
    assert len([next(outcomes) for _ in range(7)]) == 7
    with pytest.raises(ValueError, match=r"007\.png: not an image"):
        next(outcomes)
    assert (context.execution_options.preserve_order, context.enable_progress_bars) == before == (False, True)


class Dying(OnnxRuntime):
    """A detector whose worker is killed at the black square, as often as the file `kills` says."""

    def __init__(self, kills):
        super().__init__(MODEL, threads=1)
        self.kills = kills

    def __reduce__(self):
        return Dying, (self.kills,)

    def __call__(self, input, img_shape, ori_shape=None):
        if (img_shape[:, 0] == img_shape[:, 1]).any():
            left = int(self.kills.read_text())
            if left:
                self.kills.write_text(str(left - 1))
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(input, img_shape, ori_shape)


@pytest.fixture
def deadly(photos):
    """The same pictures; number 40 is the square at which `Dying` dies."""
    import cv2

    cv2.imwrite(str(photos[40]), np.zeros((3, 3, 3), np.uint8))
    return photos


def test_a_killed_worker_loses_nothing(cluster, deadly, tmp_path):
    kills = tmp_path / "kills"
    kills.write_text("1")
    result = list(Predictor(Ray(Dying(kills)), score_threshold=0).predict(deadly, return_exceptions=True))
    assert kills.read_text() == "0"
    expected = Predictor(OnnxRuntime(MODEL, threads=1), score_threshold=0).predict(deadly, return_exceptions=True)
    assert_same(result, list(expected))


def test_pictures_that_kill_every_worker_end_the_run(cluster, deadly, tmp_path):
    kills = tmp_path / "kills"
    kills.write_text("100")
    with pytest.raises(OSError, match=r"^ray: .+$"):  # one line
        list(Predictor(Ray(Dying(kills)), score_threshold=0).predict(deadly, return_exceptions=True))
    assert int(kills.read_text()) == 100 - (MAX_RETRIES + 1)


def test_refuses():
    with pytest.raises(ValueError, match="Ray: the network must have threads, the cores that each worker occupies"):
        Ray(OnnxRuntime(MODEL))
    predictor = Predictor(Ray(MODEL), score_threshold=0)
    with pytest.raises(ValueError, match="predict: batch_size must be positive, got 0"):
        predictor.predict([], 0)
    with pytest.raises(TypeError, match=r"on Ray, images must be paths of files, got ndarray"):
        predictor.predict([np.zeros((8, 8, 3), np.uint8)])
    with pytest.raises(ValueError, match="windows run in this process only, got a predictor on Ray"):
        predict(predictor, IMAGES, PredictOptions(windows=Windows(64, 8)))


def test_refuses_more_threads_than_a_node_has(cluster, photos):
    with pytest.raises(ValueError, match=r"threads must be at most 1, .* got 2"):
        list(Predictor(Ray(OnnxRuntime(MODEL, threads=2)), score_threshold=0).predict(photos))


def test_single_pictures_run_in_this_process():
    """No cluster is started."""
    predictor = pickle.loads(pickle.dumps(Predictor(Ray(MODEL), score_threshold=0)))
    expected = Predictor(OnnxRuntime(MODEL, threads=1), score_threshold=0)(IMAGES[0])
    was_connected = ray.is_initialized()
    assert predictor(IMAGES[0]).to_json() == expected.to_json()
    assert ray.is_initialized() == was_connected


def test_other_engines_run_on_ray(cluster, tmp_path):
    standard = tmp_path / "standard.onnx"
    make_portable(MODEL, standard, "inlined")
    network = OpenVino(standard, threads=1)
    expected = list(Predictor(network, score_threshold=0).predict(IMAGES))
    assert_same(list(Predictor(Ray(network), score_threshold=0).predict(IMAGES)), expected)


def mmort(*arguments, cluster):
    """Run a command in a process of its own, on the cluster."""
    return subprocess.run(
        [sys.executable, "-m", "mmort", *map(str, arguments)],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("form", ["{}", "ray://{}"])
def test_a_cluster_that_does_not_answer(form):
    """Ray itself would try, and print, for minutes."""
    with socket.socket() as silent:  # bound, but not listening
        silent.bind(("127.0.0.1", 0))
        address = form.format(f"127.0.0.1:{silent.getsockname()[1]}")
        result = mmort("predict", MODEL, IMAGES[0], "--engine", "ray", cluster=SimpleNamespace(address=address))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert f"ray: nothing answers at {address}, which RAY_ADDRESS names: " in line


def test_mmort_predict(cluster, photos, tmp_path):
    lines = {}
    for engine in ("onnxruntime", "ray"):
        arguments = "predict", MODEL, photos[0].parent, "--engine", engine, "--threads", 1, "--batch-size", 4
        result = mmort(*arguments, "--out-dir", tmp_path / engine, cluster=cluster)
        assert result.returncode == 1
        assert "007.png: not an image" in result.stderr
        assert "1 of 150 images could not be processed" in result.stderr
        lines[engine] = (tmp_path / engine / "detections.jsonl").read_text()
    assert lines["ray"] == lines["onnxruntime"]
    assert len(lines["ray"].splitlines()) == 149


def test_mmort_test(cluster, tmp_path):
    figures = []
    for engine in ("onnxruntime", "ray"):
        file = tmp_path / f"{engine}.json"
        data = "--ann", ANNOTATIONS, "--img-dir", IMAGES[0].parent, "--eval", "bbox", "segm"
        arguments = "test", MODEL, *data, "--engine", engine, "--threads", 1, "--metrics-json", file
        result = mmort(*arguments, cluster=cluster)
        assert result.returncode == 0, result.stderr
        figures.append(json.loads(file.read_text()))
    assert figures[0] == figures[1]
    assert figures[0]["segm_mAP"] > 0.5
