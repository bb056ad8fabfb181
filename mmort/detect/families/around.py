"""Models around a detector: trackers, and the student and teacher of semi-supervised training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mmort.configs.schema import Config
from mmort.detect.entries import AROUND, PARTS, Schema, nested, training_only


@PARTS.register(AROUND, "ByteTrack", "DeepSORT", "MaskTrackRCNN", "OCSORT", "QDTrack", "StrongSORT")
@dataclass(frozen=True, kw_only=True)
class Tracker(Schema):
    """The entries of a ``model`` that joins the detections in the images of a video."""

    detector: Config

    ignored: ClassVar = {
        "data_preprocessor": "read by the preprocessing",
        **dict.fromkeys(
            ("cmc", "motion", "postprocess_model", "reid", "track_head", "tracker"), "no part of detecting"
        ),
        **training_only("freeze_detector", "freeze_reid"),
    }
    branch: ClassVar = "detector"


@dataclass(frozen=True, kw_only=True)
class SemiTestCfg(Schema):
    """The entries of ``semi_test_cfg``."""

    predict_on: Literal["student", "teacher"] = "teacher"

    ignored: ClassVar = dict.fromkeys(("extract_feat_on", "forward_on"), "no part of detecting")

    def check(self, name: str) -> None:
        """Refuse another detector than the two."""
        if self.predict_on not in ("student", "teacher"):
            raise ValueError(f"detect.build: {name}.predict_on must be 'teacher' or 'student', got {self.predict_on!r}")


@PARTS.register(AROUND, "SemiBaseDetector", "SoftTeacher")
@dataclass(frozen=True, kw_only=True)
class SemiSupervised(Schema):
    """The entries of a ``model`` of a student and a teacher, two detectors of one config, of which one detects.

    Source: M. Xu et al., "End-to-End Semi-Supervised Object Detection with Soft Teacher", ICCV 2021.
    """

    detector: Config
    semi_test_cfg: SemiTestCfg | None = nested(SemiTestCfg, "semi_test_cfg", default=None)

    ignored: ClassVar = {"data_preprocessor": "read by the preprocessing", **training_only("semi_train_cfg")}

    @property
    def branch(self) -> str:
        """The one that detects."""
        return (self.semi_test_cfg or SemiTestCfg()).predict_on
