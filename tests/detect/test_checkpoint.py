"""Checkpoints: their weights are read, other objects in them are skipped, and code in them never runs."""

import builtins
import contextlib
import io
import os
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from mmort.detect import checkpoint
from mmort.detect.checkpoint import load_checkpoint, load_weights
from mmort.detect.loading import PARTS
from mmort.detect.parts.layers import DeformConv

MMENGINE = Path(__file__).parents[1] / "data" / "checkpoints" / "mmengine.pth"


@pytest.fixture
def saved(tmp_path):
    def save(content, zipped=True):
        torch.save(content, tmp_path / "c.pth", _use_new_zipfile_serialization=zipped)
        return tmp_path / "c.pth"

    return save


def test_of_mmengine():
    weights, meta = load_checkpoint(MMENGINE)
    assert list(weights) == ["conv.weight"]
    assert torch.equal(weights["conv.weight"], torch.tensor([[0.5, -2]]))
    assert meta["classes"] == ("cat", "dog")
    assert meta["epoch"] == 1
    assert "seed" not in meta  # a number of numpy's is left out, not guessed


@pytest.mark.parametrize(
    "names", [np.array(["cat", "zebrä"]), np.array(["cat", "zebrä"], object), list(np.array(["cat", "zebrä"]))]
)
def test_names_in_arrays(saved, names):
    for meta in ({"CLASSES": names}, {"dataset_meta": {"classes": names}}):
        path = saved({"state_dict": {"a": torch.ones(1)}, "meta": meta})
        assert load_checkpoint(path)[1]["classes"] == ("cat", "zebrä")


@pytest.mark.parametrize("names", [np.array([1, 2]), np.array([["cat", "dog"]]), np.array("cat"), list(np.ones(2))])
def test_arrays_that_are_not_names(saved, names):
    path = saved({"state_dict": {"a": torch.ones(1)}, "meta": {"CLASSES": names}})
    with pytest.raises(ValueError, match="the classes of a checkpoint must be a list of names"):
        load_checkpoint(path)


@pytest.mark.parametrize("zipped", [True, False])
def test_layouts(saved, zipped):
    tensor = torch.ones(1)
    for content, classes in (
        ({"state_dict": {"a": tensor}, "meta": {"CLASSES": ["x", "y"]}}, ("x", "y")),
        ({"state_dict": {"a": tensor}, "meta": {"CLASSES": "x"}}, ("x",)),
        ({"state_dict": {"a": tensor}, "meta": {"dataset_meta": {"CLASSES": ("x",)}}}, ("x",)),
        ({"state_dict": {"a": tensor}, "meta": {"dataset_meta": {"classes": ("x", None)}}}, ("x", "1")),
        ({"state_dict": {"module.a": tensor, "ema_a": tensor}, "meta": {"CLASSES": None}}, None),
        ({"a": tensor.double()}, None),
    ):
        weights, meta = load_checkpoint(saved(content, zipped))
        assert weights == {"a": tensor}
        assert meta.get("classes") == classes
    assert load_checkpoint(saved({"n": torch.tensor(3)}, zipped))[0]["n"].dtype == torch.int64


class Attack:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["os.mkdir", "eval", "open", "getattr"])
def test_code_is_refused(saved, tmp_path, name, zipped):
    marker = str(tmp_path / "marker")
    attack = {
        "os.mkdir": Attack(os.mkdir, marker),
        "eval": Attack(eval, f"__import__('os').mkdir({marker!r})"),
        "open": Attack(open, marker, "w"),
        "getattr": Attack(getattr, Attack(builtins.__import__, "os"), "mkdir"),
    }[name]
    path = saved({"meta": {"x": attack}, "state_dict": {"a": torch.ones(1)}}, zipped)
    with pytest.raises(ValueError, match="holds code, which is not run: it asks for") as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)
    assert not Path(marker).exists()


def test_skipped_objects_do_nothing(saved):
    """MMEngine's logs ask for `getattr`, among others; its stand-in finds nothing."""
    stand_in = Attack(getattr, Attack(getattr, "text", "__class__"), "mro")
    weights, meta = load_checkpoint(saved({"meta": {"x": stand_in}, "state_dict": {"a": torch.ones(1)}}))
    assert list(weights) == ["a"]
    assert meta == {}


def test_what_others_allowed_is_not_called(saved):
    """`mmort.mmcv` lets torch.load call functions for MMEngine's logs, in the whole process."""
    calls = []

    def record(*arguments):
        calls.append(arguments)

    path = saved({"meta": {"x": Attack(getattr, "text", "__class__")}, "state_dict": {"a": torch.ones(1)}})
    with torch.serialization.safe_globals([(record, "builtins.getattr")]):
        assert list(load_checkpoint(path)[0]) == ["a"]
        assert (record, "builtins.getattr") in torch.serialization.get_safe_globals()
    assert calls == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "holds a list"),
        ({"state_dict": {}}, "neither a 'state_dict' nor tensors"),
        ({"state_dict": [1]}, "neither"),
        ({"state_dict": {"a": 1}}, "neither"),
        ({"epoch": 3}, "neither"),
        ({3: torch.ones(1)}, "keys of weights must be text, got 3"),
        ({"w": torch.ones(1), "module.w": torch.ones(1)}, "holds weights for w twice"),
        (
            {"w": torch.ones(1).to_sparse()},
            r"w must be a dense tensor of real numbers, got a tensor of torch.sparse_coo",
        ),
        ({"w": torch.ones(1, dtype=torch.complex64)}, "w must be a dense tensor of real numbers"),
        ({"state_dict": {"w": torch.ones(1)}, "meta": {"CLASSES": 5}}, "classes .* must be a list of names, got 5"),
        ({"state_dict": {"w": torch.ones(1)}, "meta": {"CLASSES": torch.ones(2)}}, "a list of names, got a tensor of"),
        ({"state_dict": {"w": torch.ones(1)}, "meta": {"CLASSES": [["a"]]}}, "a list of names, got a list"),
        (torch.nn.Linear(1, 1), "holds code"),
    ],
)
def test_no_checkpoint(saved, content, message):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(saved(content))


def test_no_file_of_torch(tmp_path):
    path = tmp_path / "c.pth"
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a", "b")
    for content in (b"", b"\0", b"text", b"<html>404</html>" * 50, b"\x80\x02.", (tmp_path / "other.zip").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint") as error:
            load_checkpoint(path)
        assert "weights_only" not in str(error.value)  # torch's advice to run what the file holds
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "nowhere.pth")
    with pytest.raises(ValueError, match="download it first"):
        load_checkpoint("https://example.org/c.pth")


def test_large_tensors_in_small_files(saved, tmp_path):
    """A stride of 0, and a compressed record, make a large tensor of few bytes: shapes are compared before copies."""
    large = torch.ones(1).half().as_strided((2**40,), (0,))
    weights, _ = load_checkpoint(saved({"weight": large, "bias": torch.ones(1)}))
    with pytest.raises(ValueError, match=r"weight is \[1099511627776\] in the checkpoint, \[1, 1\] by the config"):
        load_weights(torch.nn.Linear(1, 1), weights)
    path = saved({"weight": torch.zeros(10_000)})
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "small.pth", "w", zipfile.ZIP_DEFLATED) as small:
        for name in archive.namelist():
            small.writestr(name, archive.read(name))
    with pytest.raises(ValueError, match=r"its records take 4\d+ bytes, more than the file"):
        load_checkpoint(tmp_path / "small.pth")


def compressed(path, content):
    """Return an archive of torch.save's with compressed records."""
    torch.save(content, path)
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as small:
        for name in archive.namelist():
            small.writestr(name, archive.read(name))
    return packed.getvalue()


def with_version(archive):
    """Return an archive whose records need version 10.0, which zipfile refuses and torch does not look at."""
    return archive.replace(b"PK\x01\x02\x14\x03\x14\0", b"PK\x01\x02\x14\x03\x64\0")


def with_two_directories(archive):
    """Return an archive with a second directory, of a harmless record, where zipfile looks and torch does not."""
    harmless = io.BytesIO()
    with zipfile.ZipFile(harmless, "w") as small:
        small.writestr("archive/version", "3")
    directory = bytearray(harmless.getvalue()[harmless.getvalue().index(b"PK\1\2") : -22])
    comment = int.from_bytes(archive[-10:-6], "little") - len(directory)
    directory[32:34] = comment.to_bytes(2, "little")
    return archive[:-22] + bytes(directory) + bytes(comment) + archive[-22:]


def with_a_long_name(archive):
    """Return an archive with a record whose name torch's list cuts short."""
    added = io.BytesIO(archive)
    with zipfile.ZipFile(added, "a") as more:
        more.writestr("a/" + "b" * 600, "")
    return added.getvalue()


@pytest.mark.parametrize("change", [with_version, with_two_directories, with_a_long_name])
def test_archives_whose_records_are_hard_to_list(tmp_path, change):
    """Torch inflates records that Python's zipfile does not list, or not in this size."""
    path = tmp_path / "a.pth"
    path.write_bytes(change(compressed(path, {"weight": torch.zeros(10_000)})))
    assert torch.load(path, weights_only=True)["weight"].numel() == 10_000
    with pytest.raises(ValueError, match=r"its records take 4\d+ bytes, more than the file|is not a checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize("change", [with_version, with_two_directories])
def test_torch_2_9_reads_what_zipfile_lists(tmp_path, monkeypatch, change):
    """Its own reader tells no sizes, so it gets an archive that zipfile has read and written."""
    monkeypatch.setattr(checkpoint, "_TELLS_SIZES", False)
    path = tmp_path / "a.pth"
    torch.save({"weight": torch.arange(10_000)}, path)
    assert torch.equal(load_checkpoint(path)[0]["weight"], torch.arange(10_000))
    content = compressed(path, {"weight": torch.zeros(10_000)})
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"its records take 4\d+ bytes, more than the file"):
        load_checkpoint(path)
    path.write_bytes(change(content))
    with pytest.raises(ValueError, match=r"a\.pth: is not a checkpoint, or is cut short: "):
        load_checkpoint(path)


def test_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.pth")
    with pytest.raises(ValueError, match="checkpoint must be a regular file, got a pipe or a device"):
        load_checkpoint(tmp_path / "pipe.pth")


def test_half_precision_loads(saved):
    weights, _ = load_checkpoint(saved(torch.nn.Linear(1, 1).half().state_dict()))
    model = torch.nn.Linear(1, 1)
    load_weights(model, weights)
    assert (model.weight.dtype, model.weight.item()) == (torch.float32, weights["weight"].float().item())


def test_an_onnx_file_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match=r"^checkpoint must be a \.pth file, got the ONNX file .*x\.onnx$"):
        load_checkpoint(tmp_path / "x.onnx")


@pytest.mark.parametrize("zipped", [True, False])
def test_damaged(saved, zipped):
    content = saved({"state_dict": {"a": torch.ones(100)}, "meta": {"CLASSES": ["x"]}}, zipped).read_bytes()
    path = saved({})
    for length in range(0, len(content) - 1, 37):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"is not a checkpoint, or is cut short: .|holds code") as error:
            load_checkpoint(path)
        assert "\n" not in str(error.value)
    generator = random.Random(0)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[generator.randrange(min(len(content), 600))] = generator.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            load_checkpoint(path)


class Head(torch.nn.Module):
    class_layers = {"fc_cls": 1, "retina_cls": 0, "convs_pred": 5}  # noqa: RUF012

    def __init__(self, classes, anchors=3):
        super().__init__()
        self.fc_cls = torch.nn.Linear(4, classes + 1)
        self.retina_cls = torch.nn.Conv2d(4, classes * anchors, 1)
        self.convs_pred = torch.nn.ModuleList([torch.nn.Conv2d(4, (classes + 5) * anchors, 1)])
        self.bn = torch.nn.BatchNorm2d(4)


class Model(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.bbox_head = Head(classes)


def test_weights_load():
    weights = {key: value + 1 for key, value in Model(10).state_dict().items()}
    del weights["bbox_head.bn.num_batches_tracked"]
    model = Model(10)
    load_weights(model, weights)
    assert torch.equal(model.bbox_head.fc_cls.weight, weights["bbox_head.fc_cls.weight"])


def test_weights_that_do_not_fit():
    weights = Model(10).state_dict()
    weights.update({f"neck.{i:02}": torch.ones(1) for i in range(13)})
    weights["bbox_head.bn.bias"] = torch.ones(5)
    del weights["bbox_head.fc_cls.bias"], weights["bbox_head.bn.running_mean"]
    before = Model(10)
    copy = {key: value.clone() for key, value in before.state_dict().items()}
    with pytest.raises(ValueError, match="the weights do not fit the config") as error:
        load_weights(before, weights)
    assert str(error.value).split("\n")[1:4] == [
        "  missing from the checkpoint: bbox_head.bn.running_mean",
        "    bbox_head.fc_cls.bias",
        "  not in the config's model: neck.00",
    ]
    assert "    ... and 3 more\n  different shapes: bbox_head.bn.bias is [5] in the checkpoint, [4] by the" in str(
        error.value
    )
    assert all(torch.equal(value, copy[key]) for key, value in before.state_dict().items())  # nothing was loaded


@pytest.mark.parametrize(("key", "rows"), [("fc_cls.bias", 81), ("retina_cls.bias", 240), ("convs_pred.0.bias", 255)])
def test_other_number_of_classes(key, rows):
    config = {"model": {"roi_head": {"bbox_head": [{"num_classes": 10}, {"num_classes": 10}]}}}
    weights = Model(10).state_dict()
    weights[f"bbox_head.{key}"] = Model(80).state_dict()[f"bbox_head.{key}"]
    message = f"bbox_head.{key} has {rows} rows = 80 classes in the checkpoint, the config has num_classes=10"
    with pytest.raises(ValueError, match="rows") as error:
        load_weights(Model(10), weights, config)
    assert str(error.value) == message


def test_former_names():
    class Convolution(torch.nn.Module):
        renamed_keys = DeformConv.renamed_keys

        def __init__(self):
            super().__init__()
            self.conv_offset = torch.nn.Conv2d(1, 18, 1)

    model = torch.nn.ModuleDict({"conv2": Convolution()})
    weights = {"conv2_offset.weight": torch.ones(18, 1, 1, 1), "conv2_offset.bias": torch.ones(18)}
    load_weights(model, weights)
    assert torch.equal(model["conv2"].conv_offset.bias, torch.ones(18))


def test_swin_by_its_authors():
    """Their names; of 2 x 2 tokens they read column by column, all channels of each, MMDetection each channel."""
    config = {"type": "SwinTransformer", "embed_dims": 4, "depths": (1, 1), "num_heads": (1, 1), "out_indices": (0, 1)}
    torch.manual_seed(0)
    swin, loaded = (PARTS.build("backbone", config) for _ in range(2))
    rows, columns, channels = 2, 2, 4

    def by_column(values):
        tokens = values.reshape(*values.shape[:-1], channels, rows, columns)
        pieces = [tokens[..., row, column] for column in range(columns) for row in range(rows)]
        return torch.cat(pieces, -1)

    names = {
        "patch_embed.projection": "patch_embed.proj",
        "stages.": "layers.",
        "attn.w_msa.": "attn.",
        "ffn.layers.0.0.": "mlp.fc1.",
        "ffn.layers.1.": "mlp.fc2.",
    }
    theirs = {}
    for key, value in swin.state_dict().items():
        name = key
        for ours, other in names.items():
            name = name.replace(ours, other)
        theirs[name] = by_column(value) if "downsample" in name else value
    assert not theirs.keys() & {key for key in swin.state_dict() if key.startswith("stages")}
    load_weights(loaded, theirs)
    assert all(torch.equal(value, swin.state_dict()[key]) for key, value in loaded.state_dict().items())
