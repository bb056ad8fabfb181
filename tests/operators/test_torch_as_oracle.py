"""torch as a second oracle, for operators that torch has too."""

import numpy as np
import pytest
import torch

import mmort
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators import cases

MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")


def torch_grid_sample(input, grid, **attributes):
    attributes = {"align_corners": False} | attributes
    arrays = (torch.tensor(np.array(array)) for array in (input, grid))
    return torch.nn.functional.grid_sample(*arrays, **attributes).numpy()


def _comparable(case):
    """Return false where torch differs: points not finite, or "nearest" halfway between pixels."""
    not_finite = any(word in case.name for word in ("not_finite", "holes"))
    halfway = "pixels" in case.name and case.attributes.get("mode") == "nearest"
    return all(array.size for array in case.arrays) and not not_finite and not halfway


SAMPLED = [case for case in cases.of("grid_sample") if _comparable(case)]


@pytest.mark.parametrize("case", SAMPLED, ids=str)
def test_grid_sample(case):
    for dtype in (np.float32, np.float64):
        arrays = [array.astype(dtype) for array in case.arrays]
        wanted = torch_grid_sample(*arrays, **case.attributes)
        tolerance = {np.float32: 1e-4, np.float64: 1e-12}[dtype]  # torch multiplies and adds in one rounding
        assert_close([mmort.grid_sample(*arrays, **case.attributes)], [wanted], str(case), tolerance)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", PADDING_MODES)
def test_grid_sample_halfway(padding_mode, align_corners):
    """Halfway between two pixels "nearest" takes the even one, as in torch."""
    input = np.arange(9.0, dtype=np.float64).reshape(1, 1, 1, 9)
    pixels = np.arange(-1.5, 10, 0.5)
    x = pixels / 4 - 1 if align_corners else (2 * pixels + 1) / 9 - 1
    exact = ((x + 1) / 2 * 8 if align_corners else ((x + 1) * 9 - 1) / 2) == pixels
    assert exact.sum() >= 10
    grid = np.stack([x, np.zeros_like(x)], axis=-1)[None, None, exact]
    attributes = {"mode": "nearest", "padding_mode": padding_mode, "align_corners": align_corners}
    assert_same([mmort.grid_sample(input, grid, **attributes)], [torch_grid_sample(input, grid, **attributes)])


CONVOLUTIONS = [case for case in cases.of("deform_conv2d") if all(array.size for array in case.arrays)]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_deform_conv2d_without_offsets_is_conv2d(case):
    input, offset, weight = (np.nan_to_num(array.astype(np.float64), posinf=1, neginf=1) for array in case.arrays)
    attributes = {name: value for name, value in case.attributes.items() if name != "deform_groups"}
    wanted = torch.nn.functional.conv2d(torch.tensor(input), torch.tensor(weight), **attributes).numpy()
    offset[:] = 0
    mask, bias = np.full_like(offset[:, ::2], 0.5), np.arange(len(weight)) + 1.0
    assert_close([mmort.deform_conv2d(input, offset, weight, **case.attributes)], [wanted])
    modulated = mmort.modulated_deform_conv2d(input, offset, mask, weight, bias, **case.attributes)
    assert_close([modulated], [wanted / 2 + bias[:, None, None]])


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_deform_conv2d_is_grid_sample_before_a_product(case):
    """Tap by tap; far outside both give 0."""
    arrays = (array.astype(np.float64) for array in case.arrays)
    input, offset, weight = (np.nan_to_num(array, nan=0.25, posinf=99, neginf=-99) for array in arrays)
    stride, padding, dilation = (
        np.broadcast_to(case.attributes.get(name, default), 2)
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    groups, deform_groups = (case.attributes.get(name, 1) for name in ("groups", "deform_groups"))
    (images, channels, *sides), (outputs, _, *kernel), size = input.shape, weight.shape, offset.shape[2:]
    offset = offset.reshape(images, deform_groups, *kernel, 2, *size)
    maps = input.reshape(images * deform_groups, channels // deform_groups, *sides)
    columns = np.empty((images, channels, *kernel, *size))
    for tap in np.ndindex(*kernel):
        grid = np.empty((images, deform_groups, *size, 2))
        for axis in (0, 1):
            start = np.arange(size[axis]) * stride[axis] - padding[axis] + tap[axis] * dilation[axis]
            position = np.expand_dims(start, 1 - axis) + offset[:, :, tap[0], tap[1], axis]
            grid[..., 1 - axis] = (2 * np.clip(position, -1e3, 1e3) + 1) / sides[axis] - 1
        sampled = torch_grid_sample(maps, grid.reshape(images * deform_groups, *size, 2))
        columns[:, :, tap[0], tap[1]] = sampled.reshape(images, channels, *size)
    columns = columns.reshape(images, groups, channels // groups, *kernel, *size)
    weights = weight.reshape(groups, outputs // groups, channels // groups, *kernel)
    wanted = np.einsum("ngcijhw,gocij->ngohw", columns, weights).reshape(images, outputs, *size)
    got = mmort.deform_conv2d(input, offset.reshape(images, -1, *size), weight, **case.attributes)
    assert_close([got], [wanted], str(case), 1e-10)


def torch_scan(operator, array, dim):
    return tuple(result.numpy() for result in getattr(torch, operator)(torch.tensor(np.array(array)), dim))


DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")


@pytest.mark.parametrize("operator", ["cummax", "cummin"])
@pytest.mark.parametrize("case", cases.of("cummax"), ids=str)
def test_scans(operator, case):
    assert_same(
        getattr(mmort, operator)(*case.arrays, **case.attributes), torch_scan(operator, *case.arrays, **case.attributes)
    )


@pytest.mark.parametrize("operator", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scans_of_every_dtype(operator, dtype, rng):
    for shape in ((5, 6, 7), (40,), (3, 33)):
        array = rng.integers(0, 100, shape).astype(dtype)
        if dtype.startswith("float"):
            array[rng.random(shape) < 0.1] = np.nan
        for dim in range(-len(shape), len(shape)):
            assert_same(getattr(mmort, operator)(array, dim), torch_scan(operator, array, dim))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_scans_of_dtypes_that_torch_lacks(dtype, rng):
    array = rng.integers(0, np.iinfo(dtype).max, (9, 17), dtype=dtype, endpoint=True)
    for operator in ("cummax", "cummin"):
        for dim in (0, 1):
            assert_same(getattr(mmort, operator)(array, dim), cases.ORACLES[operator](array, dim))
    for mode in ("top", "bottom", "left", "right"):
        assert_same([mmort.corner_pool(array[None, None], mode)], cases.ORACLES["corner_pool"](array[None, None], mode))


@pytest.mark.parametrize("case", [case for case in cases.of("group_norm") if case.arrays[0].size], ids=str)
def test_group_norm(case):
    """Torch computes in float64 here: its float32 overflows where squares do."""
    for dtype in (np.float32, np.float64):
        arrays = [array.astype(dtype) for array in case.arrays]
        x, scale, bias = (torch.tensor(array.astype(np.float64)) for array in arrays)
        attributes = {"eps": 1e-5} | case.attributes
        wanted = torch.group_norm(x, attributes["num_groups"], scale, bias, attributes["eps"]).numpy().astype(dtype)
        tolerance = {np.float32: 1e-5, np.float64: 1e-11}[dtype]  # torch expands (x - mean) * factor
        assert_close(front_ends.run_numpy(case.operator, arrays, case.attributes), [wanted], str(case), tolerance)


def torch_corner_pool(array, mode):
    dim = {"top": 2, "bottom": 2, "left": 3, "right": 3}[mode]
    tensor = torch.tensor(np.array(array))
    if mode in ("bottom", "right"):
        return torch.cummax(tensor, dim).values.numpy()
    return torch.cummax(tensor.flip(dim), dim).values.flip(dim).numpy()


@pytest.mark.parametrize("case", cases.of("corner_pool"), ids=str)
def test_corner_pool(case):
    np.testing.assert_array_equal(
        mmort.corner_pool(*case.arrays, **case.attributes), torch_corner_pool(*case.arrays, **case.attributes)
    )


@pytest.mark.parametrize("mode", ["top", "bottom", "left", "right"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_corner_pool_of_every_dtype(mode, dtype, rng):
    array = rng.integers(0, 100, (2, 3, 11, 9)).astype(dtype)
    assert_same([mmort.corner_pool(array, mode)], [torch_corner_pool(array, mode)])
