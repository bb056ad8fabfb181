"""OpenMMLab's packages whose models `mmort.original` exports: how their configs are known, and what installs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmort.configs.schema import plain_type


@dataclass(frozen=True)
class Package:
    """A package of OpenMMLab.

    Attributes
    ----------
    name : str
    module : str
        Its module, which is the ``default_scope`` of its configs.
    models : tuple of str
        The types of models that configs without a scope are known by.
    versions : tuple of str
        The versions that fit each other, and packages whose own requirements are not needed.
    requirements : tuple of str
        Other packages that it imports.
    """

    name: str
    module: str
    models: tuple[str, ...]
    versions: tuple[str, ...]
    requirements: tuple[str, ...]

    @property
    def command(self) -> str:
        """The commands that install it; MMCV's compiled half is `mmort.mmcv`.

        ``--no-deps``, as MMCV and MMEngine require the OpenCV with windows, and torchvision another torch.
        """
        requirements = sorted({*_SMALL, *self.requirements})
        quoted = (f"'{name}'" if "<" in name else name for name in requirements)
        return f"pip install --no-deps {' '.join((*_MMCV, *self.versions))} && pip install {' '.join(quoted)}"


_MMCV = "mmengine==0.10.7", "mmcv-lite==2.1.0"
_SMALL = "addict", "matplotlib", "pillow", "rich", "scipy", "termcolor", "yapf"
"""The packages that all of them import."""

PACKAGES = {
    package.module: package
    for package in (
        Package(
            "MMPretrain",
            "mmpretrain",
            ("ImageClassifier",),
            ("mmpretrain==1.2.0", "torchvision"),
            ("einops", "importlib-metadata<9", "mat4py", "model-index"),
        ),
        Package(
            "MMSegmentation",
            "mmseg",
            ("EncoderDecoder", "CascadeEncoderDecoder"),
            ("mmsegmentation==1.2.2",),
            ("ftfy", "prettytable", "regex"),
        ),
        Package(
            "MMPose",
            "mmpose",
            ("TopdownPoseEstimator",),
            ("mmpose==1.3.2", "mmdet==3.3.0", "xtcocotools"),
            ("json-tricks", "munkres", "pycocotools", "shapely", "six", "terminaltables"),
        ),
        Package(
            "MMOCR",
            "mmocr",
            ("ABINet", "ASTER", "CRNN", "SVTR", "DBNet"),
            ("mmocr==1.0.1", "mmdet==3.3.0", "torchvision"),
            ("pyclipper", "pycocotools", "rapidfuzz", "shapely", "six", "terminaltables"),
        ),
    )
}
"""The packages by the scope of their configs."""

MMDETECTION = Package(
    "MMDetection", "mmdet", (), ("mmdet==3.3.0",), ("pycocotools", "shapely", "six", "terminaltables")
)
"""The package whose parts models of the others have, such as Mask2Former's; its own detectors are `mmort.detect`'s."""


def package_of(config: Mapping[str, Any]) -> Package | None:
    """Return the package that a config is for; None of MMDetection's, and of others'.

    Examples
    --------
    >>> from mmort.configs.packages import package_of
    >>> package_of({"default_scope": "mmseg"}).name
    'MMSegmentation'
    """
    scope, model = config.get("default_scope"), config.get("model")
    if isinstance(scope, str):
        return PACKAGES.get(scope)
    kind = plain_type(model.get("type")) if isinstance(model, dict) else None
    return next((package for package in PACKAGES.values() if kind in package.models), None)
