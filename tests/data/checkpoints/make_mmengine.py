"""Writes mmengine.pth: a checkpoint as MMEngine (0.10.7) saves one, with all that it keeps beside the weights.

pip install mmengine torch && python tests/data/checkpoints/make_mmengine.py
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.logging import MessageHub

hub = MessageHub.get_instance("training")
hub.update_scalar("train/loss", np.float32(1.5))
hub.update_info("order", np.arange(3))
checkpoint = {
    "meta": {"dataset_meta": ConfigDict(classes=("cat", "dog"), palette=[(1, 2, 3)]), "seed": np.int64(3), "epoch": 1},
    "state_dict": OrderedDict({"module.conv.weight": torch.tensor([[0.5, -2]], dtype=torch.float16)}),
    "message_hub": hub.state_dict(),
    "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]},
    "param_schedulers": [{"last_step": 3, "_global_step": np.int64(4)}],
}
torch.save(checkpoint, Path(__file__).parent / "mmengine.pth")
