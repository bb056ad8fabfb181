"""The compiled half of MMCV: ``import mmort.mmcv``, and MMDetection runs and trains on a CPU with today's torch.

MMCV's Python half, a pure wheel (``pip install mmcv-lite``), asks a compiled module ``mmcv._ext`` for its operators.
Importing this package puts one into ``sys.modules`` that calls mmort's.  A complete MMCV whose operators can be loaded
keeps them.

It also lets torch's safe loading read the histories that MMEngine saves in checkpoints.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise ImportError("mmort.mmcv needs torch: pip install 'mmort[torch]'") from None

from mmort.mmcv.histories import allow_histories
from mmort.mmcv.installation import install

__all__ = ["install"]

install()
allow_histories()
