"""A summary of a file that `mmort.onnx.adopt` understood, in a few lines."""

from __future__ import annotations

from dataclasses import dataclass

from mmort.contract.preprocessing import Preprocessing
from mmort.onnx.adopt.layout import Layout
from mmort.tables import lay_out

_MAX_NAMES = 5

_UNITS = {
    "pixels": "pixels of the input",
    "relative": "shares of the input's sides",
    "original": "pixels of the original image",
}


@dataclass(frozen=True)
class Adoption:
    """The meaning of a file's inputs and outputs; as text, a line for each step from the image to the detections.

    Attributes
    ----------
    exporter : str
        The program that wrote the file.
    image : str
        The input's name and shape.
    layout : Layout
    left_out : tuple of str
        Outputs that the layout does not name, which the adopted file does not have.
    selects : bool
        Whether the adopted file chooses detections among the network's boxes, rather than the network itself.
    guessed : str, optional
        The meanings that were guessed, and the evidence for them.
    further : tuple of str
        The inputs besides the image, and their contents.
    """

    exporter: str
    image: str
    layout: Layout
    left_out: tuple[str, ...] = ()
    selects: bool = True
    guessed: str | None = None
    further: tuple[str, ...] = ()

    def __str__(self) -> str:
        layout = self.layout
        unit = _UNITS[layout.box_unit]
        grid = "" if layout.strides is None else f", on grids of strides {', '.join(map(str, layout.strides))}"
        angle = "" if layout.angle is None else f", turned by {layout.angle}"
        left_out = [("left out", ", ".join(self.left_out))] if self.left_out else []
        points = "x, y, score" if layout.keypoint_columns == 3 else "x, y"
        guessed = "" if self.guessed is None else f"\nguessed, as the file does not say it: {self.guessed}"
        table = lay_out(
            [
                ("file of", self.exporter),
                ("input", f"{self.image}: {preprocessing_text(layout.prepare)}"),
                *(("input", text) for text in self.further),
                ("boxes", f"{layout.boxes}: {layout.box_format} in {unit}{grid}{angle}"),
                ("scores", self._scores()),
                *([("keypoints", f"{layout.keypoints}: {points}")] if layout.keypoints is not None else []),
                *([("masks", self._masks())] if layout.masks is not None else []),
                ("classes", self._classes()),
                *([("then", self._selection())] if self.selects else []),
                *left_out,
            ]
        )
        return table + guessed

    def _scores(self) -> str:
        """Return the meaning of the scores, and the steps on them."""
        layout = self.layout
        steps = [layout.scores if layout.labels is None else f"{layout.scores}, of the class in {layout.labels}"]
        if layout.objectness is not None:
            steps.append(f"times {layout.objectness}")
        if layout.activation != "none":
            steps.append(f"after {layout.activation}")
        if layout.background != "none":
            steps.append(f"without the {layout.background} class, the background")
        return ", ".join(steps)

    def _masks(self) -> str:
        """Return the format of the masks, as text."""
        layout, mask_format = self.layout, self.layout.format_of_masks
        assert mask_format is not None
        source = f"{layout.masks}" if layout.prototypes is None else f"{layout.masks} times {layout.prototypes}"
        area = "its box" if mask_format.area == "box" else "the input"
        cut = ", cut at the boxes" if mask_format.inside_boxes else ""
        return f"{source}, over {area}, above {mask_format.threshold:g}{cut}"

    def _classes(self) -> str:
        """Return the names of the first classes."""
        names = self.layout.classes
        if names is None:
            return "without names, which --set classes=NAME,NAME,... gives"
        more = ", ..." if len(names) > _MAX_NAMES else ""
        return f"{len(names)}: {', '.join(names[:_MAX_NAMES])}{more}"

    def _selection(self) -> str:
        """Return how detections are chosen."""
        layout = self.layout
        among = "all classes" if layout.class_agnostic else "a class"
        measure = "an IoU" if layout.angle is None else "a probabilistic IoU"
        suppression = (
            "no suppression"
            if layout.iou_threshold is None
            else f"suppression above {measure} of {layout.iou_threshold:g} within {among}"
        )
        labels = ", several classes for a box" if layout.multi_label else ""
        threshold = f", scores above {layout.score_threshold:g}"
        return f"{suppression}{labels}{threshold}, at most {layout.max_detections} detections"


def preprocessing_text(settings: Preprocessing) -> str:
    """Return how images become the input."""
    steps = ["red, green, blue" if settings.to_rgb else "blue, green, red"]
    if settings.size is not None:
        verb = "fitted into" if settings.keep_ratio else "stretched to"
        steps.append(f"{verb} {settings.size[0]} x {settings.size[1]}")
    if settings.padding is not None:
        value = "zeros" if settings.padding.value is None else f"{settings.padding.value}"
        where = "on all sides" if settings.padding.centred else "right and below"
        steps.append(f"padded {where} with {value}")
    if any(settings.mean) or any(value != 1 for value in settings.std):
        mean, std = (
            ", ".join(f"{value:g}" for value in (values[:1] if len(set(values)) == 1 else values))
            for values in (settings.mean, settings.std)
        )
        steps.append(f"minus ({mean}), divided by ({std})")
    return "; ".join(steps)
