"""The torch API: the operators as functions and layers that torch.compile, torch.export and the ONNX exporters know."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise ImportError("mmort.torch needs torch: pip install 'mmort[torch]'") from None

from mmort.torch import attention, functions, losses, modules, rotated
from mmort.torch.attention import *
from mmort.torch.definition import define
from mmort.torch.functions import *
from mmort.torch.losses import *
from mmort.torch.modules import *
from mmort.torch.rotated import *

__all__ = ["define"]
__all__ += attention.__all__
__all__ += functions.__all__
__all__ += losses.__all__
__all__ += modules.__all__
__all__ += rotated.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
