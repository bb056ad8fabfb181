"""The base class of all detectors: how they are called, loaded and exported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from mmort.configs.captions import Prompt
from mmort.configs.layout import DetectorConfig
from mmort.contract import BOXES, MaskFormat, Preprocessing
from mmort.contract.pipeline_settings import settings_of
from mmort.detect.entries import Parts, Schema, part

if TYPE_CHECKING:
    from mmort.detect.parts.bert import TextEncoder


@dataclass(frozen=True, kw_only=True)
class ModelEntries(Schema):
    """The entries of a config's ``model``; families add theirs."""

    backbone: nn.Module = part("backbone")
    neck: nn.Module | None = part("neck", default=None)

    ignored: ClassVar = {"data_preprocessor": "read by the preprocessing", "_scope_": "where MMEngine looks types up"}


class Detector(nn.Module):
    """A detector; its submodules, and so the keys of its ``state_dict``, have MMDetection's names.

    A family is a subclass.  Its constructor takes the whole config as a `DetectorConfig`, and the `Parts` to
    build its parts with.  Those that its `Model` declares as parts become submodules of the same names.

    Attributes
    ----------
    family : str
        The name of the detector, such as "Faster R-CNN".
    classes : tuple of str
        Names of the classes by label.  Empty if the checkpoint has none.
    head_entries : tuple of str
        The entries of ``model`` that may hold the head whose type is registered for the family, or a list of heads,
        the last of which has that type.
    earlier_heads : tuple of str
        Entries whose heads come before it, and so do not name the family.
    Model : subclass of ModelEntries
        The schema of the config's ``model``.
    TestCfg : subclass of Schema
        The schema of its ``test_cfg``, wherever that is.
    entries, test_cfg : ModelEntries, Schema
        What they have read; the second says how detections are selected.
    clip_boxes : bool
        Whether boxes are clipped to the original image once they are mapped to it.
    inclusive_boxes : bool
        Whether boxes end with their last pixel, and MMDetection adds one of the original image.
    flip_test : bool, default False
        Whether `forward` also detects in the mirror images.
    takes_proposals : bool
        Whether `forward` must be given proposals.
    takes_texts : bool
        Whether `set_texts` says what to look for.
    output_names : tuple of str
        Names of the tensors that `forward` returns: a form of `mmort.contract.DETECTION`.
    mask_format : MaskFormat
        What the output ``masks`` holds.
    angle_version : str or None
        Of detectors of rotated boxes, the version of their angles: "oc", "le90" or "le135".
    renamed_keys : tuple of (str, str)
        Keys of the ``state_dict`` that have other names in other versions of MMDetection: a regular expression that
        matches the key in a checkpoint, and its replacement.  Any submodule may have them too.
    unused_weights : tuple of str
        How the keys of weights begin that a checkpoint has and the detector does not use.
    """

    family: str
    head_entries: ClassVar[tuple[str, ...]] = ("bbox_head",)
    earlier_heads: ClassVar[tuple[str, ...]] = ("rpn_head", "mask_head")
    clip_boxes: ClassVar[bool] = False
    inclusive_boxes: ClassVar[bool] = False
    Model: ClassVar[type[ModelEntries]] = ModelEntries
    TestCfg: ClassVar[type[Schema]] = Schema
    entries: ModelEntries
    test_cfg: Any
    backbone: nn.Module
    neck: nn.Module
    renamed_keys: ClassVar[tuple[tuple[str, str], ...]] = ()
    unused_weights: ClassVar[tuple[str, ...]] = ()
    takes_texts: ClassVar[bool] = False

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__()
        self.test_cfg = parts.read("test_cfg", self.TestCfg, config.test_cfg)
        self.entries = parts.read("model", self.Model, config.model)
        for name, entry in vars(self.entries).items():
            if isinstance(entry, nn.Module):
                self.add_module(name, entry)
        if self.entries.neck is None:
            self.neck = nn.Identity()
        self.classes: tuple[str, ...] = ()
        self.flip_test = False
        self.takes_proposals = False
        self.output_names: tuple[str, ...] = BOXES
        self.mask_format = MaskFormat()
        self.angle_version: str | None = None

    @property
    def box_settings(self) -> dict[str, bool]:
        """The detector's own arguments of `Preprocessing.from_config`, beside those of its config."""
        return {"clip_boxes": self.clip_boxes, "inclusive_boxes": self.inclusive_boxes}

    @property
    def heads(self) -> tuple[str, ...]:
        """The submodules whose outputs are compared, besides detections, where there are few of these."""
        return ("bbox_head",)

    @property
    def level_counts(self) -> Mapping[str, int]:
        """For each entry of the config that has a stride for each of the neck's maps, by its name, their number."""
        return {}

    def levels(self, input: Tensor) -> list[Tensor]:
        """Return the neck's maps [N, C, h, w]; ValueError if there are not as many as `level_counts` has."""
        features = list(self.neck(self.backbone(input)))
        for entry, count in self.level_counts.items():
            if count != len(features):
                raise ValueError(
                    f"detect: {entry} must have as many strides as there are levels, the neck's num_outs or the "
                    f"backbone's out_indices, {len(features)}, got {count}"
                )
        return features

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the tensors that `raw` returns: MMDetection's, with the level if there are several."""
        raise NotImplementedError

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the network before any post-processing."""
        raise NotImplementedError

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        """Detect objects in a batch of images.

        Parameters
        ----------
        input : Tensor of float32, [N, 3, H, W]
            Normalized images, each in the upper left corner; zeros to its right and below it.
        img_shape : Tensor of int64, [N, 2], optional
            Height and width of each image in `input`, without its padding.  By default the whole input.

        Returns
        -------
        dets : Tensor of float32, [N, K, 5]
            x1, y1, x2, y2 in pixels of `input`, and the score, by descending score; unused rows are 0.  K is the
            config's ``max_per_img``.  Rotated boxes have six columns: x, y of the centre, width, height, angle in
            radians, clockwise on screen, and the score.
        labels : Tensor of int64, [N, K]
            Classes; -1 in unused rows.
        masks : Tensor of float32, [N, K, h, w], of detectors with masks only
            Values over the area of each box or over the whole input, as `mask_format` says; 0 in unused rows.
        """
        raise NotImplementedError

    def name_classes(self, names: Sequence[str]) -> None:
        """Take over the names of the classes of a checkpoint."""
        self.classes = tuple(names)

    def set_texts(self, prompt: Prompt, vocabulary: str | os.PathLike[str] | None = None) -> None:
        """Run the language model on what to look for, whose names become the classes.

        Parameters
        ----------
        prompt : Prompt
        vocabulary : path, optional
            BERT's ``vocab.txt``.  By default that in the folder which the config names.

        Raises
        ------
        ValueError
            If there is no vocabulary or not that of the model, a name has no tokens, or all together have too many.
        """
        raise NotImplementedError

    def text_encoder(self) -> TextEncoder:
        """Return the encoder that makes the further arguments of `forward` that stand for words.

        Raises
        ------
        ValueError
            If the detector has no language model, or its words must be constants.
        """
        reason = "whose words are constants of its file" if self.takes_texts else "which has no language model"
        raise ValueError(f"export: open_vocabulary must be False for {self.family}, {reason}")

    def prepare_for_export(self, *, flip: bool) -> tuple[str, ...]:
        """Change the detector so that its file does what the config's test pipeline does around the network.

        Parameters
        ----------
        flip : bool
            Whether the test pipeline also detects in the mirror image of each image.

        Returns
        -------
        tuple of str
            What the file leaves out of the test pipeline, to be shown to the user.
        """
        return ("the mirrored images of the config's test pipeline",) if flip else ()


def level_names(kinds: Sequence[str], levels: int) -> tuple[str, ...]:
    """Return the names of maps: ``cls_score_0``, ``cls_score_1`` ..., then those of the next kind."""
    return tuple(f"{kind}_{level}" for kind in kinds for level in range(levels))


def require_proportions(config: DetectorConfig, reason: str) -> None:
    """Raise a ValueError with a reason if the test pipeline resizes images to a size of other proportions."""
    if config.has_test_pipeline and not Preprocessing(**settings_of(config)).keep_ratio:
        raise ValueError(f"detect.build: Resize of the test pipeline must have keep_ratio=True: {reason}")
