"""Timing of detectors: by stage, by turns, without the first runs; a clock that the stages set shows it."""

import numpy as np
import pytest

from mmort import demo
from mmort.predict import Predictor, Preprocessing, benchmark, benchmarking
from tests.predict import tiny_detector


class Clock:
    """The time, which goes on only when something is done."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def spends(self, seconds, function, name):
        """Return a function that takes some seconds, more when it is called first."""

        def call(*arguments):
            self.now += seconds if name in self.calls else 100
            self.calls.append(name)
            return function(*arguments)

        return call


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(benchmarking.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(benchmarking, "read_image", clock.spends(0.25, benchmarking.read_image, "read"))
    return clock


def network(clock, seconds, name):
    """Return a detector that finds nothing in some seconds."""

    def detect(input, img_shape):
        return np.zeros((len(input), 0, 5), np.float32), np.zeros((len(input), 0), np.int64)

    run = clock.spends(seconds, detect, name)
    run.input_shape, run.mask_format, run.engine = (None, None, None), None, "python"
    return Predictor(run, preprocessing=Preprocessing(size=(32, 16)))


def test_medians_by_stage_and_by_turns(clock):
    predictors = {"slow": network(clock, 2.0, "slow"), "fast": network(clock, 0.5, "fast")}
    result = benchmark(predictors, demo.IMAGES, batch_size=2, runs=3, threads=1)
    slow, fast = (timing.milliseconds for timing in result.timings)
    assert slow == {"read": 250, "preprocess": 0, "run": 1000, "postprocess": 0, "total": 1250}
    assert fast["run"] == 250
    ratios = result.to_dict()["files"][1]["times_as_fast"]
    assert (ratios["run"], ratios["total"]) == (4, 2.5)
    assert [name for name in clock.calls if name != "read"] == ["slow", "fast"] * (2 + 3)
    assert result.timings[0].images_per_second == 0.8
    lines = str(result).splitlines()
    assert lines[0].split("  ")[-1] == "times as fast"
    assert lines[3].split() == ["run", "1000.00", "250.00", "4.00"]
    assert lines[-1].startswith("medians of 3 runs of 4 images in batches of 2, by turns; python, 1 thread, ")


def test_an_image_of_noise_is_not_read(clock):
    result = benchmark({"a": network(clock, 1.0, "a")}, runs=1)
    assert result.timings[0].milliseconds == {"preprocess": 0, "run": 1000, "postprocess": 0, "total": 1000}
    assert "an image of noise in batches of 1; python" in str(result)
    assert "read" not in clock.calls


def test_a_batch_that_the_file_does_not_take_runs_in_parts(clock):
    """As `Predictor` runs it: three images on a file for two."""
    predictor = network(clock, 1.0, "a")
    predictor.network.input_shape = 2, None, None
    result = benchmark({"a": predictor}, demo.IMAGES, batch_size=3, runs=2)
    assert result.timings[0].milliseconds["run"] == pytest.approx(2000 / 3)


def test_a_file(tmp_path):
    predictor = Predictor(tiny_detector.write(tmp_path / "a.onnx"))
    result = benchmark({"a": predictor}, demo.IMAGES[:1], runs=2)
    assert all(milliseconds > 0 for milliseconds in result.timings[0].milliseconds.values())
    assert result.timings[0].engine == "onnxruntime"
    assert result.peak_memory is None or result.peak_memory > 10**7
    total = result.timings[0].milliseconds.pop("total")
    assert total == pytest.approx(sum(result.timings[0].milliseconds.values()), rel=0.8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"predictors": {}}, "predictors must not be empty"),
        ({"runs": 0}, "runs must be positive, got 0"),
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
    ],
)
def test_refused(clock, arguments, message):
    with pytest.raises(ValueError, match=f"^benchmark: {message}"):
        benchmark(**{"predictors": {"a": network(clock, 1.0, "a")}, **arguments})
