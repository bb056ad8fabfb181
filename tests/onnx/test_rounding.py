"""Torch's own rounding as a yardstick: what is as good as torch passes at any magnitude, what is not never does."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mmort.onnx.verify import double_precision, rounding
from mmort.onnx.verify.double_precision import in_float64, rounded_otherwise
from mmort.onnx.verify.rounding import EPSILON, LIMIT, measured_factors, measured_growth


def arrays(rng, scale=1.0, noise=1e-6, shape=(2, 8, 20, 30)):
    """Return three float32 versions of numbers with noise that is a share of the scale, and these in float64 third."""
    exact = scale * rng.standard_normal(shape)
    actual, expected, rounded = (
        (exact + noise * scale * rng.standard_normal(shape)).astype(np.float32) for _ in range(3)
    )
    return actual, expected, exact, rounded


def factors(*runs):
    return measured_factors(*runs)[0]


def count_wrong(*runs):
    return int((factors(*runs) > LIMIT).sum())


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 1e6, 1e20])
@pytest.mark.parametrize("noise", [1e-7, 1e-3])
def test_equally_rounded_numbers_pass_at_any_magnitude(scale, noise, rng):
    assert 1 < factors(*arrays(rng, scale, noise)).max() < LIMIT / 2


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_a_hundred_times_the_rounding_does_not(scale, rng):
    actual, *torchs = arrays(rng, scale)
    actual[0, 1, 2, 3] += np.float32(1e-4 * scale)
    result = factors(actual, *torchs)
    assert (result > LIMIT).sum() == 1
    assert 30 < result[0, 1, 2, 3] < 300


@pytest.mark.parametrize("part", [(0, 3), (0, slice(None), 2, 7), (1, 1), (0, 1, 9), (slice(None), slice(None), 5)])
def test_large_rounding_elsewhere_hides_nothing(part, rng):
    """In the same image, the same row, the same channel."""
    actual, expected, *further = arrays(rng)
    expected[part] += 10
    actual[part] += 10
    assert count_wrong(actual, expected, *further) == 0
    actual[0, 1, 2, 3] += np.float32(1e-3)
    assert count_wrong(actual, expected, *further) == 1


def test_a_small_region_is_found(rng):
    """It is off by a hundred times the rounding around it."""
    actual, *torchs = arrays(rng)
    actual[1, :, 4:6, 4:6] += np.float32(1e-4)
    assert count_wrong(actual, *torchs) == 32


def test_rounding_that_is_a_share_of_the_number(rng):
    """As that of an exponential: the largest numbers are off most, and small ones may not be."""
    exact = np.exp(rng.standard_normal((4, 50, 60)))
    actual, expected, rounded = ((exact * (1 + 1e-6 * rng.standard_normal(exact.shape))).astype("f4") for _ in range(3))
    assert count_wrong(actual, expected, exact, rounded) == 0
    actual[np.unravel_index(exact.argmin(), exact.shape)] *= np.float32(1.01)
    assert count_wrong(actual, expected, exact, rounded) == 1


def test_the_rounding_of_numbers_of_the_same_magnitude_counts(rng):
    """Torch has one of the large numbers exactly in all runs, in a channel, row and column of small ones."""
    exact = rng.uniform(1e-3, 2e-3, (40, 50))
    exact[np.arange(40), np.arange(40)] = rng.uniform(1, 1.9, 40)
    actual, expected, rounded = ((exact * (1 + 1e-4 * rng.standard_normal(exact.shape))).astype("f4") for _ in range(3))
    expected[3, 3] = rounded[3, 3] = exact[3, 3] = 1.5
    actual[3, 3] = 1.5 * (1 + 2e-3)
    assert count_wrong(actual, expected, exact, rounded) == 0
    actual[3, 3] = 1.5 * (1 + 2e-2)
    assert count_wrong(actual, expected, exact, rounded) == 1


def test_the_rounding_around_a_number_counts(rng):
    """Torch has one exactly in all runs, and none is as large."""
    actual, expected, exact, rounded = arrays(rng, noise=1e-3)
    exact[0, 1, 2, 3] = expected[0, 1, 2, 3] = rounded[0, 1, 2, 3] = 100
    actual[0, 1, 2, 3] = 100.005
    assert count_wrong(actual, expected, exact, rounded) == 0
    actual[0, 1, 2, 3] = 100.1
    assert count_wrong(actual, expected, exact, rounded) == 1


def test_numbers_that_torch_has_exactly_still_have_a_last_place():
    exact = np.array([1.0, 2.0, 4.0])
    expected = exact.astype(np.float32)
    near, far = expected * np.float32(1 + 4 * EPSILON), expected * np.float32(1 + 100 * EPSILON)
    assert count_wrong(near, expected, exact, expected) == 0
    assert count_wrong(far, expected, exact, expected) == 3
    zeros = np.zeros(3)
    assert count_wrong(zeros.astype("f4"), zeros.astype("f4"), zeros, zeros.astype("f4")) == 0
    assert count_wrong(np.float32([0, 1e-30, 0]), zeros.astype("f4"), zeros, zeros.astype("f4")) == 1


@pytest.mark.parametrize("further", [0, 1])
def test_any_run_of_torch_shows_its_rounding(further, rng):
    """A number that torch has exactly in two runs is judged by a third one, if there is one."""
    exact = rng.uniform(1, 2, 1000)
    expected, rounded, third = (exact + 1e-6 * rng.standard_normal((3, 1000))).astype(np.float32)
    actual = expected.copy()
    for array, moved in ((expected, 0), (rounded, 0), (third, 1e-4), (actual, 1e-4)):
        array[0] = exact[0] + moved
    assert count_wrong(actual, expected, exact, rounded, *[third] * further) == 1 - further


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("actual", "expected", "exact", "ok"),
    [
        ([NAN, INF, -INF, 1], [NAN, INF, -INF, 1], [NAN, INF, -INF, 1], True),
        ([INF, 1], [INF, 1], [1e39, 1], True),  # float32 has no such number
        ([NAN, 1], [2, 1], [2, 1], False),
        ([INF, 1], [2, 1], [2, 1], False),
        ([2, 1], [NAN, 1], [NAN, 1], False),
        ([2, 1], [NAN, 1], [2, 1], True),
        ([2, 1], [INF, 1], [INF, 1], False),
        ([INF, 1], [-INF, 1], [-INF, 1], False),
        ([], [], [], True),
    ],
)
def test_special_numbers(actual, expected, exact, ok):
    actual, expected, exact = np.array(actual, "f4"), np.array(expected, "f4"), np.array(exact, "f8")
    result = factors(actual, expected, exact, expected)
    assert (result == INF).sum() == (result > LIMIT).sum() == (0 if ok else 1)


@pytest.mark.parametrize(
    ("stride", "dilation", "padding", "groups"), [(1, 1, 1, 1), (2, 1, 0, 1), (2, 2, 2, 2), (3, 1, 1, 4)]
)
def test_convolutions_in_strips(stride, dilation, padding, groups, monkeypatch):
    monkeypatch.setattr(double_precision, "MAX_COLUMNS", 500)
    module = torch.nn.Conv2d(4, 8, 3, stride, padding, dilation, groups)
    image = torch.randn(2, 4, 23, 17)
    with torch.no_grad():
        with in_float64():
            result = module(image.double())
        assert result.dtype == torch.float64
        assert torch.allclose(result, module.double()(image.double()), rtol=1e-13, atol=1e-13)


class Constants(torch.nn.Module):
    """Has a parameter, a buffer, tensors that are neither, and dtypes in its code."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)
        self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3]))
        self.plain = torch.tensor(0.7)

    def forward(self, x):
        x = self.norm(x) + self.shift[:, None, None] * self.plain
        x = x + torch.arange(x.shape[3], dtype=torch.float32) / 3
        x = torch.cat([x, x.new_ones(x.shape) * torch.tensor(1 / 3)], 1)
        return x.float().exp().to(torch.float32)


def test_constants_of_all_kinds_follow():
    module, x = Constants().eval(), torch.randn(2, 3, 4, 5)
    with torch.no_grad():
        with in_float64():
            wide = module(x.double())
        narrow = module(x)
        assert (wide.dtype, narrow.dtype) == (torch.float64, torch.float32)
        assert torch.allclose(wide, narrow.double(), rtol=1e-5)
        assert (wide != narrow.double()).float().mean() > 0.9
        assert module.shift.dtype == torch.float32


def test_other_rounding_is_that_of_its_seed():
    """Exact numbers, such as coordinates of cells, stay as they are."""

    def run(seed):
        with rounded_otherwise(seed):
            return x.exp(), torch.arange(5.0) * 8

    x = torch.linspace(0.1, 1, 100)
    (first, cells), (again, _), (other, _) = map(run, (0, 0, 1))
    assert cells.tolist() == [0, 8, 16, 24, 32]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, x.exp())
    assert torch.allclose(first, x.exp(), rtol=10 * EPSILON, atol=0)


def test_no_slice_of_few_numbers_counts(monkeypatch):
    """A row of three numbers may be exact by accident."""
    array = np.ones((8, 3))
    array[2] = 0
    assert np.broadcast_to(rounding.around(array), array.shape)[2, 0] > 0.5
    monkeypatch.setattr(rounding, "MIN_SLICE", 3)
    assert np.broadcast_to(rounding.around(array), array.shape)[2, 0] == 0


def test_single_numbers_have_no_axes():
    number = np.float32(0.1)
    expected = np.asarray(number)
    assert count_wrong(np.asarray(np.nextafter(number, np.float32(1))), expected, np.asarray(0.1), expected) == 0
    assert count_wrong(np.asarray(number * np.float32(1.001)), expected, np.asarray(0.1), expected) == 1


def test_one_huge_number_hides_nothing_in_a_row():
    exact = np.linspace(1, 2, 1000)[None]
    exact[0, 500] = 1e9
    expected = exact.astype(np.float32)
    actual = expected.copy()
    actual[0, 3] *= np.float32(1.0001)
    assert count_wrong(actual, expected, exact, expected) == 1


@pytest.mark.parametrize("transposed", [False, True])
def test_rounding_of_a_convolution_is_that_of_its_own_channels(transposed, rng):
    """A depthwise one has a weak channel beside strong ones; its terms are weak."""
    scales = torch.tensor([1e-3, 1.0, 1e3])[None, :, None, None]
    input = scales * torch.from_numpy(rng.standard_normal((1, 3, 32, 32)).astype(np.float32))
    weight = torch.from_numpy(rng.standard_normal((3, 1, 3, 3)).astype(np.float32))
    convolve = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    exact = convolve(input.double(), weight.double(), groups=3)
    with rounded_otherwise(0):
        off = (convolve(input, weight, groups=3) - exact).abs().amax((0, 2, 3)) / exact.abs().amax((0, 2, 3))
    assert (off < 1e-6).all(), off


def test_unused_rows_do_not_make_rounding_smaller(rng):
    """Of a hundred detections most are 0: what is rounded at all shows how far rounding goes elsewhere."""
    actual, *torchs = arrays(rng)
    growth = measured_factors(actual, *torchs)[1]
    padded = [np.concatenate([run, np.zeros_like(run), np.zeros_like(run)], axis=1) for run in (actual, *torchs)]
    assert measured_factors(*padded)[1] == pytest.approx(growth, rel=0.5)
    assert measured_growth(*padded[1:]) == measured_factors(*padded)[1]
    assert measured_growth(*[np.zeros_like(run) for run in torchs]) == 1


def in_order(array):
    """Sum up rows as ONNX Runtime does: sixteen partial sums, each in order."""
    lanes = array.reshape(*array.shape[:-1], -1, 16)
    return np.cumsum(lanes, axis=-2, dtype=np.float32)[..., -1, :].sum(-1, dtype=np.float32)


def levels(rng):
    """Return eight channels of an image of few levels, whose partial sums are all rounded in the same direction."""
    rows, columns = np.linspace(0.2, 1, 256)[:, None], np.linspace(0.5, 1, 480)
    image = np.round(rows * columns * rng.uniform(0.2, 1, (8, 1, 1)) * 20) / 20
    return image[None].astype(np.float32)


def factors_of(function, image, actual):
    """Return by how many times torch's rounding the numbers that a file computed are off."""
    with torch.no_grad():
        narrow, exact = (function(torch.from_numpy(array)) for array in (image, image.astype(np.float64)))
        with rounded_otherwise(0):
            rounded = function(torch.from_numpy(image))
    return measured_factors(actual, *(run.numpy() for run in (narrow, exact, rounded)))[0]


def test_sums_in_order(rng):
    """Torch sums up in a tree; sums in order are as right, and others as wrong as ever."""
    image = levels(rng)
    means = in_order(image.reshape(1, 8, -1)) / np.float32(image[0, 0].size)
    assert factors_of(lambda x: x.mean((2, 3)), image, means).max() < rounding.LIMIT
    assert factors_of(lambda x: x.mean((2, 3)), image, means * np.float32(1.0005)).min() > rounding.LIMIT


def of_groups(x):
    return F.group_norm(x, 8)


def of_weighted_groups(x):
    return F.group_norm(x, 8, torch.linspace(0.1, 3, 8, dtype=x.dtype))


def of_layers(x):
    return F.layer_norm(x, x.shape[2:])


@pytest.mark.parametrize("norm", [of_groups, of_weighted_groups, of_layers])
def test_normalizations_that_sum_up_in_order(rng, norm):
    image = levels(rng)[:, :, :128, :160].copy()
    flat = image.reshape(1, 8, -1)
    count = np.float32(flat.shape[2])
    off = flat - in_order(flat)[..., None] / count
    actual = (off / np.sqrt(in_order(off**2)[..., None] / count + np.float32(1e-5))).reshape(image.shape)
    if norm is of_weighted_groups:
        actual *= np.linspace(0.1, 3, 8, dtype=np.float32)[:, None, None]
    assert factors_of(norm, image, actual).max() < rounding.LIMIT
    assert factors_of(norm, image, actual * np.float32(1.001)).max() > rounding.LIMIT
