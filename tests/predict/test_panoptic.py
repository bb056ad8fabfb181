"""Panoptic maps computed by hand, and what `Detections` make of their segments."""

import json

import numpy as np
import pytest

from mmort.detections.panoptic import SegmentIds
from mmort.predict import Detections, ImageMasks, MaskFormat, PanopticFormat, Prepared, draw
from mmort.predict.postprocessing import Postprocessing

QUERIES = PanopticFormat("queries", things=2, classes=4, min_visible=0.5)
VOID = 4


def logits(*rows):
    """Return masks of one row of pixels."""
    return np.array(rows, np.float32)[:, None]


def of_queries(panoptic, masks, labels, scores):
    """Return the map of one row of pixels, and the scores."""
    result = panoptic.of_queries(masks, labels, np.array(scores, np.float32), masks.shape[1:])
    return result.ids[0].tolist(), result.scores


def test_queries_compete_for_pixels():
    """The last pixel goes to the first query, though it is outside its mask; instances count things only."""
    masks = logits([3, 3, -9, -9, -1], [-9, -9, 3, -9, -2], [-9, -9, -9, 3, -9])
    ids, scores = of_queries(QUERIES, masks, [1, 3, 1], [0.5, 1, 0.75])
    assert ids == [1001, 1001, 3, 2001, 1001]
    assert scores == {1001: 0.5, 3: 1, 2001: 0.75}


def test_queries_may_keep_inside_their_masks():
    panoptic = PanopticFormat("queries", things=2, classes=4, min_visible=0.5, inside_only=True)
    masks = logits([3, 3, -9, -1], [-9, -9, 3, -2])
    assert of_queries(panoptic, masks, [1, 3], [0.5, 0.5])[0] == [1001, 1001, 3, VOID]


def test_stuff_of_one_kind_is_one_segment():
    ids, scores = of_queries(QUERIES, logits([3, -9], [-9, 3]), [2, 2], [0.5, 0.75])
    assert ids == [2, 2]
    assert scores == {2: 0.75}


def test_covered_queries_leave_a_hole():
    """Of the first mask, two of five pixels are left; two of four are enough."""
    scores = [0.5, 1]
    assert of_queries(QUERIES, logits([3, 3, 3, 3, 3], [-9, -9, 3, 3, 3]), [0, 1], scores)[0] == [VOID] * 2 + [1001] * 3
    assert of_queries(QUERIES, logits([3, 3, 3, 3], [-9, -9, 3, 3]), [0, 1], scores)[0] == [1000] * 2 + [2001] * 2


def test_the_first_of_equal_queries_and_kinds_of_stuff():
    assert of_queries(QUERIES, logits([3, 3], [3, 3]), [0, 1], [0.5, 0.5])[0] == [1000] * 2
    assert of_instances([], [], [], [[1, 1], [1, 1], [0, 0]])[0] == [2, 2]


def test_queries_without_pixels_or_masks():
    """The second one has the pixels of its mask covered, the third one has only pixels outside of its mask."""
    ids, scores = of_queries(QUERIES, logits([3, -9], [1, -9], [-9, -3]), [0, 1, 1], [1, 0.5, 1])
    assert ids == [1000, VOID]
    assert scores == {1000: 1}
    assert of_queries(QUERIES, np.zeros((0, 1, 3), np.float32), [], [])[0] == [VOID] * 3


INSTANCES = PanopticFormat("instances", things=2, classes=4, max_overlap=0.5, min_stuff_area=2)


def of_instances(masks, labels, scores, semantic):
    """Return the map of one row of pixels, and the scores."""
    stored = ImageMasks.from_arrays(np.array(mask, bool)[None] for mask in masks)
    size = 1, len(semantic[0])
    result = INSTANCES.of_instances(stored, labels, np.array(scores, np.float32), logits(*semantic), size)
    return result.ids[0].tolist(), result.scores


STUFF = [[9, 9, 9, 0, 0, 0], [0, 0, 0, 9, 0, 0], [0, 0, 0, 0, 9, 9]]


def test_instances_are_laid_on_stuff():
    """Stuff 2 has two pixels left, stuff 3 one, which is too few; the last channel is of things, and so of nothing."""
    ids, scores = of_instances([[0, 1, 0, 0, 0, 0]], [1], [0.75], STUFF)
    assert ids == [2, 1001, 2, VOID, VOID, VOID]
    assert scores == {1001: 0.75, 2: pytest.approx(1 / (1 + 2 * np.exp(-9)), abs=1e-6)}


def test_covered_instances_are_dropped():
    """The second mask is covered by more than half, the third by half; the fourth is empty."""
    masks = [[1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0], [0] * 6, [0, 0, 0, 0, 0, 1]]
    ids, scores = of_instances(masks, [0, 1, 1, 1, 1], [0.9, 0.8, 0.7, 0.6, 0.5], STUFF)
    assert ids == [1000, 1000, 1000, 2001, VOID, 3001]
    assert list(scores) == [1000, 2001, 3001]


def test_formats_are_stored():
    mask_format = MaskFormat("image", 0.0, 4, "fit", panoptic=QUERIES)
    assert MaskFormat.from_dict(json.loads(json.dumps(mask_format.to_dict()))) == mask_format
    with pytest.raises(ValueError, match="source must be 'queries' or 'instances', got 'pixels'"):
        PanopticFormat("pixels", 1, 2)
    with pytest.raises(ValueError, match="things and classes must be 0 <= things <= classes < 1000, got 3 and 2"):
        PanopticFormat("queries", 3, 2)


def test_masks_of_any_size():
    """MaskFormer's masks are enlarged to just the input, here 7 pixels from 2 cells, whose first 6 are the image."""
    image = Prepared(np.zeros((3, 1, 7), np.float32), (1, 6), (1, 6), (1, 7), np.ones(4, np.float32), (0, 0))
    mask = np.array([[-1, 1]], np.float32)
    part, resized = MaskFormat("image", 0.0, 4, "fit").rescaled(mask, image)
    centres = (np.arange(6) + 0.5) * 2 / 7 - 0.5
    np.testing.assert_allclose(part[0], np.clip(2 * centres - 1, -1, 1), atol=1e-6)
    assert (resized == part).all()
    part, _ = MaskFormat("image", 0.0, 4, "fit").rescaled(mask, image, (1, 14))  # in a wider batch
    np.testing.assert_allclose(part[0], np.clip((np.arange(6) + 0.5) * 2 / 7 - 2, -1, 1), atol=1e-6)


def segments():
    """Return the segments of a picture of 1 x 4 pixels: a thing, stuff, and a pixel of neither."""
    image = Prepared(np.zeros((3, 1, 4), np.float32), (1, 4), (1, 4), (1, 4), np.ones(4, np.float32), (0, 0))
    masks = logits([3, -9, -9, -9], [-9, 3, 3, -9], [1, -9, -9, 1])
    dets = np.array([[0, 0, 1, 1, 0.5], [1, 0, 3, 1, 0.75], [0, 0, 0, 0, 0]], np.float32)
    panoptic = PanopticFormat("queries", 2, 4, min_visible=0.5, inside_only=True)
    mask_format = MaskFormat("image", 0.0, 1, "fit", boxes="masks", panoptic=panoptic)
    return Postprocessing(("cat", "dog", "sky", "sea"), 0.0)(
        image, (1, 4), (dets, np.array([1, 3, -1]), masks), mask_format
    )


def test_segments_as_detections():
    segmented = segments()
    assert segmented.names == ("sea", "dog")
    assert segmented.panoptic_map.tolist() == [[1001, 3, 3, VOID]]
    assert segmented.panoptic_map.dtype == np.int32
    assert segmented.boxes.tolist() == [[1, 0, 3, 1], [0, 0, 1, 1]]
    thing = segmented.to_dict()["detections"][1]
    assert (thing["id"], thing["is_thing"], thing["area"], thing["score"]) == (1001, True, 1, 0.5)
    assert segmented[:1].panoptic_map.tolist() == [[VOID, 3, 3, VOID]]
    assert segmented.above(0.6).names == ("sea",)


def test_segments_are_drawn_without_boxes():
    masks = np.zeros((1, 120, 160), bool)
    masks[0, 60, 20:140], masks[0, 20:100, 80] = True, True  # a cross
    stored = ImageMasks.from_arrays(masks)
    arguments = stored.boxes, np.ones(1), np.zeros(1), ("cat",), (120, 160), stored
    image = np.zeros((120, 160, 3), np.uint8)
    corner = 99, 139
    assert draw(image, Detections(*arguments))[corner].any()
    segment = draw(image, Detections(*arguments, SegmentIds(np.array([1000]), 1, 2)))
    assert not segment[corner].any()
    assert segment[60, 30].any()


def test_segments_need_masks():
    ids = SegmentIds(np.array([1000]), 1, 2)
    with pytest.raises(ValueError, match="segments must have masks"):
        Detections(np.zeros((1, 4)), np.ones(1), np.zeros(1), ("cat",), (4, 4), segments=ids)


def test_missing_outputs():
    rows = np.zeros((1, 5), np.float32), np.zeros(1, np.int64)
    image = Prepared(np.zeros((3, 1, 4), np.float32), (1, 4), (1, 4), (1, 4), np.ones(4, np.float32), (0, 0))
    for panoptic, needed in ((QUERIES, "masks, of"), (INSTANCES, "masks and semantic, of")):
        with pytest.raises(ValueError, match=f"outputs must have {needed} which segments are made, got 2 outputs"):
            Postprocessing((), 0.0)(image, (1, 4), rows, MaskFormat("image", panoptic=panoptic))


def test_masks_must_cover_the_image():
    panoptic = PanopticFormat("queries", things=1, classes=2)
    with pytest.raises(ValueError, match=r"^masks must cover the image, 4 x 5, got 4 x 3$"):
        panoptic.of_queries(np.zeros((1, 4, 3), np.float32), [0], [0.5], (4, 5))
    with pytest.raises(ValueError, match=r"^masks must cover the image, 4 x 5, got 4 x 3$"):
        PanopticFormat("instances", 1, 2).of_instances(ImageMasks([], []), [], [], np.zeros((2, 4, 3)), (4, 5))
