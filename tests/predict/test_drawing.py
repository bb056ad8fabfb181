"""Drawing: tints, outlines, boxes and labels where they belong, on images and detections of every kind."""

import tracemalloc

import cv2
import numpy as np
import pytest

from mmort.detections.drawing import BACKGROUND, CAPTION_HEIGHT, MARGIN, MASK_OPACITY, PANEL_HEIGHT, class_colour
from mmort.detections.labels import Font, place_labels
from mmort.predict import BoxMasks, Detections, ImageMasks, contact_sheet, draw, read_image, write_image


def detections_of(boxes, size, labels=None, names=None, masks=None):
    count = len(boxes)
    labels = np.arange(count) if labels is None else labels
    names = tuple(f"class {label}" for label in labels) if names is None else names
    boxes = np.reshape(boxes, (count, 4))
    return Detections(boxes, np.linspace(0.99, 0.3, count), labels, names, size, masks)


def random_boxes(count, height, width, seed=0):
    rng = np.random.default_rng(seed)
    centres, sizes = rng.uniform(0, 1, (count, 2)), rng.uniform(0.05, 0.4, (count, 2))
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1) * [width, height, width, height]


def has(image, colour):
    return (image == colour).all(axis=-1)


def test_masks_boxes_and_labels():
    mask = np.zeros((240, 320), bool)
    mask[100:180, 80:160] = True
    mask[130:150, 100:120] = False
    detections = detections_of([[80, 100, 240, 180]], mask.shape, labels=[3], masks=ImageMasks.from_arrays([mask]))
    drawn = draw(np.zeros((240, 320, 3), np.uint8), detections)
    colour = class_colour(3)
    tint = np.array(colour) * MASK_OPACITY
    np.testing.assert_allclose(drawn[110, 90], tint, atol=1)
    assert not drawn[140, 110].any()  # the mask's hole
    assert not drawn[140, 200].any()  # in the box, but not in the mask
    for outline in (drawn[100:180, 159], drawn[130:150, 99]):  # of the mask, and of its hole
        assert (outline > 0.9 * np.array(colour) - 1).all()
    for edge in (drawn[100, 80:240], drawn[179, 80:240], drawn[100:180, 80], drawn[100:180, 239]):
        assert has(edge, colour).all()
    label = has(drawn[:98], colour)
    assert label.sum() > 300
    assert label[:, 80].any()  # above the box, flush with its left edge
    assert not has(drawn[190:], colour).any()


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (48, 64), (480, 640), (1280, 300), (300, 1280)])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_labels_neither_overlap_nor_leave_the_image(size, count):
    height, width = size
    for name in ("cat", "a class with a long name " * 4, "x"):
        boxes = random_boxes(count, height, width).astype(np.float32).clip(0, [width, height, width, height])
        labels = place_labels([name] * count, np.linspace(0.99, 0.3, count), boxes, [(255, 0, 0)] * count, size)
        covered = np.zeros(size, int)
        for label in labels:
            assert label.left >= 0
            assert label.top >= 0
            part = covered[label.top : label.top + label.height, label.left : label.left + label.width]
            assert part.shape == (label.height, label.width)
            part += 1
        assert covered.max() <= 1
        if min(size) >= 300 and name == "cat":
            assert len(labels) >= 0.9 * count


def test_labels_of_equal_boxes_all_find_room():
    boxes = np.tile(np.float32([200, 150, 400, 300]), (12, 1))
    labels = place_labels(["person"] * 12, [0.5] * 12, boxes, [(255, 0, 0)] * 12, (480, 640))
    assert len(labels) == 12


def test_the_highest_score_gets_the_only_room():
    (label,) = place_labels(["first"], [0.9], np.float32([[0, 0, 99, 99]]), [(0, 0, 0)], (99, 99))
    size = label.height, label.width
    boxes = np.float32([[0, 0, label.width, label.height]] * 2)
    labels = place_labels(["first", "second"], [0.9, 0.8], boxes, [(0, 0, 0)] * 2, size)
    assert [label.text for label in labels] == ["first 0.90"]


def test_labels_leave_most_of_a_small_image():
    size = 64, 64
    boxes = random_boxes(12, *size).astype(np.float32).clip(0, 64)
    labels = place_labels(["x"] * 12, np.linspace(0.99, 0.3, 12), boxes, [(0, 0, 0)] * 12, size)
    assert len(labels) > 1
    assert sum(label.width * label.height for label in labels) <= 0.3 * 64 * 64


def test_text_grows_with_the_image_and_shrinks_in_a_crowd():
    box = np.float32([[0.2, 0.2, 0.6, 0.6]])

    def letters(height, width, count=1):
        boxes = np.tile(box * [width, height, width, height], (count, 1))
        return place_labels(["cat"] * count, [0.5] * count, boxes, [(0, 0, 0)] * count, (height, width))[0].font.ascent

    assert 60 < letters(2160, 3840) == pytest.approx(4 * letters(540, 960), rel=0.1)
    assert letters(2160, 3840, count=200) < 0.8 * letters(2160, 3840)
    assert letters(240, 320, count=200) >= 9


def test_names_are_shortened_before_the_score():
    font = Font.of_height(12)
    assert font.shortened("cat", " 0.99", 1000) == "cat 0.99"
    text = font.shortened("a very long name of a class", " 0.99", 120)
    assert text.startswith("a ver")
    assert text.endswith("... 0.99")
    assert font.width(text) <= 120
    assert font.shortened("cat", " 0.99", font.width("... 0.99")) == ""  # a score alone helps nobody
    assert font.shortened("two\nlines\t", "", 1000) == "two lines "


def test_names_in_other_scripts():
    if int(cv2.__version__.split(".")[0]) < 5:
        pytest.skip("OpenCV 4 has no letters outside ASCII")
    image = np.zeros((240, 320, 3), np.uint8)
    pictures = {
        name: draw(image, detections_of([[50, 50, 300, 200]], (240, 320), labels=[0], names=(name,))).tobytes()
        for name in ("猫", "犬", "кот", "Straße", "?", "??????")
    }
    assert len(set(pictures.values())) == len(pictures)


def test_a_pixel_has_the_tint_of_the_smallest_mask():
    small, large = np.zeros((2, 200, 200), bool)
    small[80:120, 80:120] = True
    large[20:180, 20:180] = True
    boxes = [[80, 80, 120, 120], [20, 20, 180, 180]]
    for order in ([0, 1], [1, 0]):
        masks = ImageMasks.from_arrays(np.stack([small, large])[order])
        detections = detections_of(np.array(boxes)[order], (200, 200), labels=np.array(order), masks=masks)
        drawn = draw(np.zeros((200, 200, 3), np.uint8), detections)
        np.testing.assert_allclose(drawn[110, 110], np.array(class_colour(0)) * MASK_OPACITY, atol=1)
        np.testing.assert_allclose(drawn[150, 150], np.array(class_colour(1)) * MASK_OPACITY, atol=1)


def test_no_detections():
    image = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    for masks in (None, ImageMasks.from_arrays([])):
        drawn = draw(image, detections_of([], (30, 40), masks=masks))
        assert drawn is not image
        np.testing.assert_array_equal(drawn, image)


def test_boxes_at_and_beyond_the_border_stay_visible():
    boxes = [[0, 0, 100, 80], [-50, 20, 30, 40], [95, -10, 500, 10], [60, 79.6, 70, 80]]
    drawn = draw(np.zeros((80, 100, 3), np.uint8), detections_of(boxes, (80, 100), names=("",) * 4))
    for label in range(len(boxes)):
        assert has(drawn, class_colour(label)).any(), label


def test_boxes_without_an_area():
    boxes = np.array([[np.nan, 0, 10, 10], [0, -np.inf, np.inf, 20], [30, 30, 20, 20], [-9, -9, -1, -1]])
    detections = detections_of(
        boxes, (40, 50), masks=BoxMasks(np.ones((4, 2, 2), np.float32), boxes.astype(np.float32))
    )
    assert draw(np.zeros((40, 50, 3), np.uint8), detections).any()


def test_masks_are_drawn_one_at_a_time():
    size, count = (1000, 1500), 60
    boxes = random_boxes(count, *size)
    masks = BoxMasks(np.ones((count, 28, 28), np.float32), boxes.astype(np.float32))
    image, detections = np.zeros((*size, 3), np.uint8), detections_of(boxes, size, masks=masks)
    draw(image, detections)  # OpenCV's fonts are in memory now
    tracemalloc.start()
    draw(image, detections)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3.5 * image.nbytes  # all masks together are 20 times the image


def test_scale_resizes_the_image_and_not_the_lines():
    box = np.array([[10, 10, 30, 30]])
    detections = detections_of(box, (40, 50), masks=BoxMasks(np.ones((1, 2, 2), np.float32), box))
    drawn = draw(np.zeros((40, 50, 3), np.uint8), detections, scale=8)
    assert drawn.shape == (320, 400, 3)
    row = has(drawn[200], class_colour(0))
    assert row[80]
    assert row[239]
    np.testing.assert_allclose(drawn[200, 120:200], np.tile(np.array(class_colour(0)) * MASK_OPACITY, (80, 1)), atol=1)
    assert row.sum() < 10  # two thin lines, and the mask's outline beside them
    assert draw(np.zeros((40, 50, 3), np.uint8), detections, scale=0.01).shape == (1, 1, 3)


def test_colours_of_classes_differ():
    colours = np.array([class_colour(label) for label in range(80)])
    assert len(np.unique(colours, axis=0)) == 80
    first = colours[:10, None].astype(int) - colours[None, :10]
    assert (np.abs(first).sum(axis=2) + 1000 * np.eye(10)).min() > 100


@pytest.mark.parametrize(
    ("image", "size", "scale", "message"),
    [
        (np.zeros((4, 5, 2), np.uint8), (4, 5), 1, r"draw: image must be \[H, W, 3\] of uint8, .*, got \[4, 5, 2\]"),
        (np.zeros((4, 5, 3)), (4, 5), 1, r"got \[4, 5, 3\] of float64"),
        (np.zeros((4, 5, 3), np.uint8), (5, 4), 1, r"image is \(4, 5\), but the detections are for \(5, 4\)"),
        (np.zeros((4, 5, 3), np.uint8), (4, 5), 0, "scale must be positive, got 0"),
        (np.zeros((4, 5, 3), np.uint8), (4, 5), float("nan"), "scale must be positive"),
    ],
)
def test_draw_refuses(image, size, scale, message):
    with pytest.raises(ValueError, match=message):
        draw(image, detections_of([], size), scale=scale)


def test_contact_sheet():
    sizes = [(1, 1), (1, 2000), (2000, 1), (7, 5), (200, 100)]
    panels = ((f"{size}\n", np.full((*size, 3), 200, np.uint8), detections_of([], size)) for size in sizes)
    sheet = contact_sheet(panels)
    assert sheet.shape[0] == 2 * (PANEL_HEIGHT + CAPTION_HEIGHT) + MARGIN
    assert has(sheet[:MARGIN], BACKGROUND).all()
    assert has(sheet[MARGIN : MARGIN + PANEL_HEIGHT], (200, 200, 200)).sum() == 440 * 440 + 800 + 440 + 314 * 440
    second_row = has(sheet[2 * MARGIN + PANEL_HEIGHT + CAPTION_HEIGHT :], (200, 200, 200)).any(axis=0).nonzero()[0]
    assert second_row.mean() == pytest.approx(sheet.shape[1] / 2, abs=1)
    caption = sheet[2 * MARGIN + 2 * PANEL_HEIGHT + CAPTION_HEIGHT :]
    assert not has(caption, BACKGROUND).all()
    with pytest.raises(ValueError, match="panels must not be empty"):
        contact_sheet([])


def test_write_image(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    write_image(tmp_path / "image.png", image)
    np.testing.assert_array_equal(read_image(tmp_path / "image.png"), image)
    for name in ("image", "image.xyz"):
        with pytest.raises(ValueError, match=f"{name}: OpenCV writes no format with the suffix"):
            write_image(tmp_path / name, image)
    with pytest.raises(FileNotFoundError):
        write_image(tmp_path / "absent" / "image.png", image)
    deep = image.astype(np.uint16) * 257
    for name, values in (("grey.png", image[..., 0]), ("deep.png", deep), ("deep.tif", deep)):
        write_image(tmp_path / name, values)
        np.testing.assert_array_equal(read_image(tmp_path / name, "unchanged").squeeze(), values)


@pytest.mark.parametrize(
    ("name", "image", "message"),
    [
        ("a.png", np.full((4, 5, 3), 0.5), r"a.png: .* of uint8 or uint16, got \[4, 5, 3\] of float64"),
        ("a.png", np.ones((4, 5, 3), bool), "got .* of bool"),
        ("a.png", np.zeros((0, 5, 3), np.uint8), r"got \[0, 5, 3\] of uint8"),
        ("a.png", np.zeros((4, 5, 2), np.uint8), r"got \[4, 5, 2\] of uint8"),
        ("a.jpg", np.full((4, 5, 3), 700, np.uint16), "of uint8, got .* of uint16"),  # OpenCV would write 255
    ],
)
def test_arrays_that_are_no_images_are_not_written(tmp_path, name, image, message):
    with pytest.raises(ValueError, match=message):
        write_image(tmp_path / name, image)
    with pytest.raises(TypeError, match="write_image: image must be a numpy array, got list"):
        write_image(tmp_path / name, image.tolist())
    assert not (tmp_path / name).exists()
