"""What takes the place of lines of MMCV and MMSegmentation that torch cannot trace computes the same bits."""

import importlib
import itertools

import pytest
import torch

from mmort.configs.packages import PACKAGES
from mmort.original import shims
from mmort.original.packages import import_package

pytestmark = pytest.mark.filterwarnings("ignore")
import_package(PACKAGES["mmseg"])
SIZES = (7, 8), (9, 10), (11, 13)


def same(module, *shape, **tolerances):
    """Check that a shim has the original's bits, or is within tolerances."""
    image = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    expected = module(image)
    with shims.applied():
        assert type(module).forward.__module__ == shims.__name__
        actual = module(image)
    torch.testing.assert_close(actual, expected, **{"rtol": 0, "atol": 0, **tolerances})


@pytest.mark.parametrize("size", SIZES)
def test_convolutions_that_pad(size):
    from mmcv.cnn.bricks.conv2d_adaptive_padding import Conv2dAdaptivePadding

    for kernel, stride, dilation in itertools.product((1, 2, 3, (5, 3)), (1, 2, (3, 2)), (1, 2)):
        same(Conv2dAdaptivePadding(3, 4, kernel, stride, dilation=dilation), 3, *size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("module", ["mmseg.models.utils.embed", "mmcv.cnn.bricks.transformer"])
def test_padding_that_adapts(module, size):
    adapt = importlib.import_module(module).AdaptivePadding
    for kernel, stride, dilation in itertools.product((1, 2, 3, (5, 3)), (1, 2, (3, 2)), (1, 2)):
        for padding in ("same", "corner"):
            same(adapt(kernel, stride, dilation, padding), 3, *size)


@pytest.mark.parametrize("size", SIZES)
def test_enlarged_images(size):
    from mmseg.models.utils.wrappers import Upsample

    for factor in (2, 4, 1.5):
        same(Upsample(scale_factor=factor, mode="bilinear", align_corners=False), 3, *size)
    same(Upsample(size=(5, 6), mode="nearest"), 3, *size)


@pytest.mark.parametrize("size", SIZES)
def test_filters_of_images(size):
    from mmseg.models.decode_heads.dm_head import DCM

    for side, fusion, norm in ((1, False, None), (2, True, None), (5, False, {"type": "BN"})):
        module = DCM(side, fusion, 6, 4, conv_cfg=None, norm_cfg=norm, act_cfg={"type": "ReLU"}).eval()
        with torch.no_grad():
            same(module, 6, *size, rtol=1e-5, atol=1e-5)  # the products are added in another order


@pytest.mark.parametrize("shift", [0, 3])
def test_windows_that_are_shifted(shift):
    from mmseg.models.backbones.swin import ShiftWindowMSA

    module = ShiftWindowMSA(8, 2, 7, shift).eval()
    for height, width in (*SIZES, (7, 14)):
        tokens = torch.randn(2, height * width, 8, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            expected = module(tokens, (height, width))
            with shims.applied():
                torch.testing.assert_close(module(tokens, (height, width)), expected)
