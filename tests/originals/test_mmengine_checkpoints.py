"""MMEngine's checkpoints under torch's safe loading, once mmort.mmcv is imported."""

import pickle

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

import mmort.mmcv  # noqa: F401


class Attribute:
    """Pickled as getattr(owner, name)."""

    def __init__(self, owner, name):
        self.arguments = owner, name

    def __reduce__(self):
        return getattr, self.arguments


def test_histories_are_loaded(tmp_path):
    history = HistoryBuffer([1.0, 3.0], [1, 1])
    hub = {"log_scalars": {"train/loss": history}, "runtime_info": {"loss": np.float32(0.5), "step": np.int64(3)}}
    torch.save({"message_hub": hub, "state_dict": {"weight": torch.ones(2)}}, tmp_path / "checkpoint.pth")
    loaded = torch.load(tmp_path / "checkpoint.pth", weights_only=True)["message_hub"]
    assert loaded["log_scalars"]["train/loss"].mean() == 2
    assert loaded["runtime_info"] == {"loss": 0.5, "step": 3}


@pytest.mark.parametrize(
    ("owner", "name"), [(HistoryBuffer, "__subclasses__"), (np.ndarray, "mean"), (HistoryBuffer, "register_statistics")]
)
def test_other_attributes_are_not(tmp_path, owner, name):
    torch.save({"x": Attribute(owner, name)}, tmp_path / "checkpoint.pth")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "checkpoint.pth", weights_only=True)
