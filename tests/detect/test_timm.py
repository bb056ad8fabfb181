"""TIMMBackbone without timm, and with one that only records what it is asked for; tests/originals has the real one."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from mmort.detect.loading import PARTS

CONFIG = {"type": "mmpretrain.TIMMBackbone", "model_name": "tv_resnet50", "features_only": True}


@pytest.fixture
def created(monkeypatch):
    """Replace timm; return the arguments of the models that are created."""
    calls = []
    timm = ModuleType("timm")
    timm.__version__ = "1.0"
    timm.list_models = lambda: ["resnet50", "tv_resnet50"]
    timm.is_model = timm.list_models().__contains__
    timm.create_model = lambda *args, **kwargs: calls.append((args, kwargs)) or nn.Conv2d(3, 4, 1)
    monkeypatch.setitem(sys.modules, "timm", timm)
    return calls


def test_nothing_is_downloaded(created):
    backbone = PARTS.build("backbone", {**CONFIG, "pretrained": True, "checkpoint_path": "a.pth", "drop_rate": 0.1})
    ((name,), options) = created.pop()
    assert name == "tv_resnet50"
    assert {name: value for name, value in options.items() if value is not None} == {
        "features_only": True,
        "in_chans": 3,
    }
    assert backbone.state_dict().keys() == {"timm_model.weight", "timm_model.bias"}
    assert [output.shape for output in backbone(torch.zeros(1, 3, 5, 6))] == [(1, 4, 5, 6)]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model_name": "hf-hub:timm/resnet50"}, "hf-hub:timm/resnet50 is not a model of timm 1.0"),
        ({"model_name": "local-dir:/tmp"}, "local-dir:/tmp is not a model of timm"),
        ({"model_name": "tv_resnt50"}, r"tv_resnt50 \(did you mean tv_resnet50\?\) is not"),
        ({"norm_layer": "GN"}, "norm_layer 'GN' is not supported; supported: BN, BN2d, SyncBN, LN"),
        ({"scriptable": True}, "backbone 'TIMMBackbone' with scriptable is not supported"),
        ({"pretrained_cfg": {"url": "x"}}, "with pretrained_cfg is not supported"),
    ],
)
def test_refusals(created, entries, message):
    with pytest.raises(ValueError, match=rf"^detect\.build: .*{message}"):
        PARTS.build("backbone", {**CONFIG, **entries})
    assert not created


def test_timm_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"^backbone 'TIMMBackbone' needs timm: pip install 'mmort\[timm\]'$"):
        PARTS.build("backbone", CONFIG)


def test_torchvision_of_another_torch(monkeypatch, tmp_path):
    """Its operators do not load then."""
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    message = f"the torchvision that fits torch {torch.__version__}, .*nms does not exist.*: pip install .* torchvision"
    with pytest.raises(ImportError, match=message.replace("+", r"\+")):
        PARTS.build("backbone", CONFIG)
