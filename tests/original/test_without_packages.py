"""What `mmort.original` does where the packages are not installed: refusals, messages, and what needs no package."""

import pathlib

import pytest
import torch

from mmort.cli import main
from mmort.configs.packages import MMDETECTION, PACKAGES, package_of
from mmort.detect import unsupported
from mmort.detect.export import ExportOptions
from mmort.original import building, export, shims
from mmort.original.cut import arguments_at, replaced
from mmort.original.known import KnownMeta, KnownMetas, UnknownReadError, UnknownSamples
from mmort.original.packages import import_package

SEGMENTATION = """
default_scope = "mmseg"
model = dict(type="EncoderDecoder", backbone=dict(type="ResNetV1c", depth=18), decode_head=dict(type="FCNHead"))
test_pipeline = [dict(type="LoadImageFromFile"), dict(type="Resize", scale=(64, 32), keep_ratio=True)]
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.py"
    path.write_text(SEGMENTATION)
    (tmp_path / "x.pth").write_bytes(b"no checkpoint")
    return path


@pytest.mark.parametrize("scope", PACKAGES)
def test_detectors_are_not_looked_for_in_other_packages(scope):
    (problem, *_) = unsupported({"default_scope": scope, "model": {"type": "X"}})
    assert problem.startswith(
        f"{PACKAGES[scope].name}'s models are not supported as detectors; mmort export --original"
    )
    assert f"pip install --no-deps mmengine==0.10.7 mmcv-lite==2.1.0 {PACKAGES[scope].versions[0]}" in problem


@pytest.mark.parametrize("package", PACKAGES.values(), ids=lambda package: package.module)
def test_the_guide_has_the_command_that_errors_name(package):
    page = (pathlib.Path(__file__).parents[2] / "docs/original.md").read_text(encoding="utf-8")
    assert f"\n{package.command}\n" in page


def test_checking_names_the_package_and_no_parts():
    (problem,) = unsupported({"default_scope": "mmseg", "model": {"type": "X", "backbone": {"type": "FastSCNN"}}})
    assert "MMSegmentation" in problem


def test_configs_without_a_scope_are_known_by_their_model():
    for package in PACKAGES.values():
        for model in package.models:
            assert package_of({"model": {"type": model}}) is package
            assert package_of({"model": {"type": model}, "default_scope": "mmdet"}) is None
    assert package_of({"model": {"type": "FasterRCNN"}}) is None
    assert package_of({}) is None


def test_the_command_names_the_option(config, tmp_path, capsys):
    assert main(["export", str(config), str(tmp_path / "x.pth"), "--output", str(tmp_path / "o.onnx")]) == 1
    assert "mmort export --original" in capsys.readouterr().err


def test_configs_of_other_packages_are_refused(tmp_path):
    (tmp_path / "c.py").write_text("model = dict(type='RetinaNet')")
    (tmp_path / "x.pth").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"for configs of MMPretrain \('mmpretrain'\), .*c\.py is None; detectors are exported without"
    ):
        export(tmp_path / "c.py", tmp_path / "x.pth", tmp_path / "o.onnx", progress=lambda line: None)


def test_a_model_that_is_trained_by_another_one(config, tmp_path):
    model = 'model = dict(type="DWPoseDistiller", student_cfg="configs/rtmpose-m.py", teacher_cfg="configs/l.py")'
    config.write_text('default_scope = "mmpose"\n' + model + "\ntest_pipeline = [dict(type='LoadImage')]")
    with pytest.raises(ValueError, match=r"DWPoseDistiller trains .*; export configs/rtmpose-m\.py instead"):
        export(config, tmp_path / "x.pth", tmp_path / "o.onnx", progress=lambda line: None)


@pytest.mark.parametrize(
    ("steps", "first"),
    [
        ('dict(type="Resize", scale=(64, 32)), dict(type="PackSegInputs")', "'Resize'"),
        ('dict(type="LoadAnnotations"), dict(type="PackSegInputs")', "'PackSegInputs'"),
        ('dict(type="LoadAnnotations")', "none"),
    ],
)
def test_a_pipeline_that_loads_no_image(tmp_path, capsys, steps, first):
    path = tmp_path / "config.py"
    path.write_text(SEGMENTATION + f"test_pipeline = [{steps}]")
    assert main(["export", str(path), "--check", "--original"]) == 1
    message = f"export: the config's test pipeline must begin with LoadImageFromFile, got {first}"
    assert message in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (["mmseg.models"], "custom_imports must be a dict with imports, got \\['mmseg.models'\\]"),
        ({"imports": 5}, "imports of custom_imports must be text or a list of text, got 5"),
        ({"imports": [5]}, "imports of custom_imports must be text or a list of text, got \\[5\\]"),
        ({"imports": "my_models"}, "custom_imports of 'my_models' is not followed"),
    ],
)
def test_custom_imports(entry, message):
    with pytest.raises(ValueError, match=f"^export: {message}"):
        building._import_parts({"custom_imports": entry}, PACKAGES["mmseg"])


@pytest.mark.parametrize("imports", [None, [], ()])
def test_custom_imports_of_nothing(imports):
    building._import_parts({"model": {}, "custom_imports": {"imports": imports}}, PACKAGES["mmseg"])


@pytest.mark.parametrize(
    ("palette", "expected"),
    [
        ([[1, 2, 3], (4.0, 5, 255)], ((1, 2, 3), (4, 5, 255))),
        ([[1, 2, float("inf")], [4, 5, 6]], None),
        ([[1, 2, float("nan")], [4, 5, 6]], None),
        ([[1, 2, 256], [4, 5, 6]], None),
        ([[1, 2], [4, 5]], None),
    ],
)
def test_palettes(tmp_path, palette, expected):
    """One that is no colours is left out."""
    model = torch.nn.Linear(1, 1)
    meta = {"classes": ["a", "b"], "dataset_meta": {"palette": palette}}
    torch.save({"state_dict": model.state_dict(), "meta": meta}, tmp_path / "x.pth")
    original = building.Original(model, {}, PACKAGES["mmseg"])
    assert building.load(original, tmp_path / "x.pth").palette == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"texts": "cat"}, "texts must not be set with --original: it is for detectors"),
        ({"paste_masks": True}, "paste_masks must not be set with --original"),
        ({"opset_version": 17}, "opset_version must be at least 18 with --original, got 17"),
    ],
)
def test_options_of_detectors(config, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export(config, tmp_path / "x.pth", tmp_path / "o.onnx", ExportOptions(**options), progress=lambda line: None)


@pytest.mark.parametrize("package", [PACKAGES["mmseg"], MMDETECTION])
def test_a_package_that_is_missing(monkeypatch, package):
    monkeypatch.setitem(__import__("sys").modules, "mmengine", None)
    import_package.cache_clear()
    message = rf"cannot be imported: .*mmengine.*pip install --no-deps mmengine.* {package.requirements[0]}"
    try:
        with pytest.raises(ImportError, match=message):
            import_package(package)
    finally:
        import_package.cache_clear()


def test_known_meta_information():
    meta = KnownMeta(img_shape=(3, 4))
    assert meta["img_shape"] == meta.get("img_shape") == (3, 4)
    meta["img_shape"] = (5, 6)
    assert meta["img_shape"] == (5, 6)
    for read in (
        lambda: meta["ori_shape"],
        lambda: meta.get("ori_shape"),
        lambda: meta.get("ori_shape", 1),
        lambda: "ori_shape" in meta,
        lambda: meta.__setitem__("ori_shape", 1),
    ):
        with pytest.raises(UnknownReadError, match="reads the meta information 'ori_shape' of an image"):
            read()
    for read in (lambda: list(meta), meta.keys, meta.items, meta.copy, lambda: dict(**meta), lambda: len(meta)):
        with pytest.raises(UnknownReadError, match="reads all meta information"):
            read()
    batch = KnownMetas(meta)
    assert batch[0] is meta
    with pytest.raises(UnknownReadError, match="number of images"):
        len(batch)
    with pytest.raises(UnknownReadError, match="each image"):
        list(batch)
    for read in (lambda: UnknownSamples()[0], lambda: UnknownSamples().metainfo, lambda: list(UnknownSamples())):
        with pytest.raises(UnknownReadError, match="data_samples"):
            read()
    with pytest.raises(UnknownReadError, match="'valid_ratio' of the data sample of an image"):
        [sample.get("valid_ratio", 1) for sample in UnknownSamples()]
    with pytest.raises(UnknownReadError, match="'gt_text' of the data sample of an image"):
        [sample.gt_text for sample in UnknownSamples()]


class Head(torch.nn.Module):
    def decode(self, x, y):
        return x + y

    def forward(self, x):
        return self.decode(x * 2, 1)


def test_the_cut():
    head = Head()
    first, second = arguments_at(head, "decode", lambda: head(torch.ones(2)))
    assert first.tolist() == [2, 2]
    assert second == 1
    assert head(torch.ones(1)).item() == 3  # as before
    with replaced(head, "decode", lambda x, y: x - y):
        assert head(torch.ones(1)).item() == 1
        with pytest.raises(ValueError, match=r"Head\.decode is replaced already"), replaced(head, "decode", max):
            pass
    assert head(torch.ones(1)).item() == 3
    with pytest.raises(ValueError, match=r"the original never calls Head\.decode"):
        arguments_at(head, "decode", lambda: None)


@pytest.mark.parametrize(("batch", "height", "width", "size"), [(1, 4, 4, 2), (3, 6, 9, 3), (2, 8, 4, 4)])
def test_windows_become_images(batch, height, width, size):
    images = torch.arange(batch * height * width * 2).reshape(batch, height, width, 2)
    windows = images.reshape(batch, height // size, size, width // size, size, 2)
    windows = windows.permute(0, 1, 3, 2, 4, 5).reshape(-1, size, size, 2)
    assert torch.equal(shims._joined(windows, height, width, size), images)


def test_shims_hold_in_the_block_only(monkeypatch):
    module = type("module", (), {"ShiftWindowMSA": type("ShiftWindowMSA", (), {"forward": max})})
    monkeypatch.setitem(__import__("sys").modules, "mmseg.models.backbones.swin", module)
    with shims.applied():
        assert module.ShiftWindowMSA.forward is not max
    assert module.ShiftWindowMSA.forward is max
