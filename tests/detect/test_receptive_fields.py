"""RF-Next: dilations that a training hook has searched."""

import json

import pytest
import torch
from torch import nn

from mmort.detect import build, unsupported
from mmort.detect.checkpoint import load_weights
from mmort.detect.receptive_fields import BranchedConv2d, SearchEntries, set_receptive_fields
from tests.detect.test_support import COMPLETE

SEARCH = {"step": 0, "max_step": 12, "search_interval": 1, "exp_rate": 0.5, "init_alphas": 0.01, "mmin": 1, "mmax": 24}


def hooks(mode="search", file=None, branches=2, skip=("stem",), normlize="absavg"):
    search = {**SEARCH, "num_branches": branches, "skip_layer": list(skip), "normlize": normlize}
    hook = {
        "type": "RFSearchHook",
        "mode": mode,
        "rfstructure_file": file,
        "verbose": True,
        "config": {"search": search},
    }
    return {"custom_hooks": [{"type": "NumClassCheckHook"}, hook]}


def network():
    """Return layers that the hook changes, `tail` alone, and layers that it leaves."""
    layers = {"stem": nn.Conv2d(1, 1, 3), "point": nn.Conv2d(1, 1, 1), "even": nn.Conv2d(1, 1, 2)}
    return nn.ModuleDict({**layers, "tail": nn.Sequential(nn.Conv2d(1, 1, (1, 3), stride=(1, 4), padding=(0, 1)))})


def write(tmp_path, content):
    file = tmp_path / "structure.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


@pytest.mark.parametrize(
    ("rate", "branches", "dilation", "expected"),
    [
        (0.5, 2, (1, 1), [(1, 1), (2, 2)]),  # 0.5 rounds to 0, below the minimum
        (0.5, 3, (1, 1), [(1, 1), (2, 2)]),
        (0.5, 3, (3, 8), [(2, 4), (3, 8), (4, 12)]),
        (0.5, 2, (24, 20), [(12, 10), (24, 24)]),
        (0.1, 2, (1, 1), [(1, 1)]),
    ],
)
def test_dilations_around_another(rate, branches, dilation, expected):
    entries = SearchEntries(exp_rate=rate, mmin=1, mmax=24, num_branches=branches)
    assert entries.around(dilation) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [((3, 5), [(1, 1), (2, 2)]), ((1, 3), [(1, 1), (1, 2)]), ((3, 1), [(1, 1), (2, 1)]), ((2, 3), [(1, 1), (1, 2)])],
)
def test_only_odd_sides_are_dilated(kernel, expected):
    search = SearchEntries(exp_rate=0.5, mmin=1, mmax=24, num_branches=2)
    assert BranchedConv2d(nn.Conv2d(1, 1, kernel), search).dilations == expected


def test_one_dilation_of_a_file(tmp_path):
    """The padding follows from the stride too."""
    module = network()
    file = write(tmp_path, {"structure": {"module.tail.0": [1, 3], "module.other": 7}})
    set_receptive_fields(module, hooks("fixed_single_branch", file)["custom_hooks"])
    (layer,) = module["tail"]
    assert (layer.dilation, layer.padding) == ((1, 3), (0, 4))
    for name in ("stem", "point", "even"):
        assert (module[name].dilation, module[name].padding) == ((1, 1), (0, 0))


def test_branches_are_weighted_by_their_shares(tmp_path):
    """Dilations 1 and 3 around 2, with shares 1/4 and 3/4, of a row of squares that is read at every fourth."""
    module = network()
    config = hooks("fixed_multi_branch", write(tmp_path, {"structure": {"module.tail.0": [1, 2]}}))
    set_receptive_fields(module, config["custom_hooks"])
    weights = {"weight": torch.tensor([[[[1.0, 10, 100]]]]), "bias": torch.tensor([0.5])}
    state = {f"op_layer.{name}": value for name, value in weights.items()} | {"branch_weights": torch.tensor([-2.0, 6])}
    load_weights(module["tail"][0], state)
    row = torch.arange(8.0) ** 2
    near = [0, 4 + 90 + 1600, 36 + 490]  # at -2 -1 0, 2 3 4, 6 7 8
    far = [400, 90 + 3600, 16 + 490]  # at -4 -1 2, 0 3 6, 4 7 10
    expected = [0.25 * first + 0.75 * second + 0.5 for first, second in zip(near, far, strict=True)]
    assert module["tail"](row[None, None, None]).flatten().tolist() == pytest.approx(expected)


def test_a_search_without_a_file_starts_at_the_network_s_dilations():
    config = {**COMPLETE, **hooks(skip=("backbone", "neck"))}
    detector = build(config)
    added = sorted(key for key in detector.state_dict() if key.endswith("branch_weights"))
    assert added == [
        *(f"roi_head.mask_head.convs.{i}.conv.branch_weights" for i in range(len(added) - 1)),
        "rpn_head.rpn_conv.branch_weights",
    ]
    assert detector.rpn_head.rpn_conv.dilations == [(1, 1), (2, 2)]
    assert unsupported(config) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"structure": {"module.stem": 1}}', "has no dilation for module.tail.0"),
        ('{"structure": {"module.tail.0": [1, 2, 3]}}', "must be JSON with dilations in a dict 'structure'"),
        ('{"structure": {"module.tail.0": 0}}', "must be JSON with dilations"),
        ('{"structure": [1]}', "must be JSON with dilations"),
        ("[", "must be JSON with dilations"),
        (None, "cannot be read: .*: No such file"),
    ],
)
def test_files_that_do_not_fit(tmp_path, content, message):
    file = str(tmp_path / "missing") if content is None else write(tmp_path, content)
    with pytest.raises(ValueError, match=message):
        set_receptive_fields(network(), hooks("fixed_single_branch", file)["custom_hooks"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "fixed_single_branch"}, "with mode fixed_single_branch must have rfstructure_file"),
        ({"mode": "search", "branches": 4}, "num_branches must be 2 or 3, got 4"),
        ({"mode": "search", "normlize": "exp"}, "normlize of .*search must be 'absavg', got 'exp'"),
        ({"mode": "other"}, "mode must be one of search, fixed_single_branch, fixed_multi_branch, got 'other'"),
    ],
)
def test_hooks_that_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        set_receptive_fields(network(), hooks(**changes)["custom_hooks"])
