"""VOC's mAP and recall: a case computed by hand, and random ones by a second implementation."""

import itertools

import numpy as np
import pytest

from mmort.evaluate import Evaluation, ImageResult, VocDataset

CLASSES = "cat", "dog", "emu"


def box_text(name, box, difficult):
    corners = "".join(
        f"<{tag}>{edge + 1}</{tag}>" for tag, edge in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{corners}</bndbox></object>"


def write(folder, images):
    """Write a data set of images {name: [(class, box, difficult)]} whose corners count from 0."""
    (folder / "Annotations").mkdir(parents=True)
    for name, objects in images.items():
        text = "".join(itertools.starmap(box_text, objects))
        (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{text}</annotation>")
    (folder / "test.txt").write_text("\n".join(images) + "\n")
    return VocDataset(folder / "test.txt", folder, CLASSES)


def result(*rows):
    """Return the detections (label, score, box), by descending score."""
    labels, scores, boxes = zip(*rows, strict=True) if rows else ((), (), ())
    return ImageResult(
        np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32), np.array(labels, np.int64)
    )


SQUARE = (0, 0, 9, 9)  # 10 x 10 pixels, as both corners are inside
HALF = (0, 0, 9, 4)  # IoU with it 0.5
FAR = (50, 50, 59, 59)


@pytest.fixture
def by_hand(tmp_path):
    """Cats: 2 that count, 1 difficult.  Dogs: 1.  Emus: none, though one is detected."""
    dataset = write(
        tmp_path / "VOC2012",
        {
            "a": [("cat", SQUARE, 0), ("cat", FAR, 1), ("yak", FAR, 0)],
            "b": [("cat", SQUARE, 0), ("dog", FAR, 0)],
            "c": [],
        },
    )
    results = [
        result((0, 0.9, SQUARE), (0, 0.8, HALF), (0, 0.7, FAR)),  # right, a second one: wrong, difficult: neither
        result((0, 0.75, HALF), (1, 0.6, SQUARE)),  # right at 0.5, wrong at 0.6; a dog where there is none
        result((2, 0.5, FAR), (0, 0.1, FAR)),  # wrong, both
    ]
    return dataset, results


def test_mean_ap_by_hand(by_hand):
    dataset, results = by_hand
    # Cats by score: right, wrong, neither, right, wrong: recall 1/2 at precision 1, then 1 at 2/3.
    figures = dataset.score(results, ["mAP"], {}).figures
    assert figures == pytest.approx({"mAP": (1 / 2 + 1 / 2 * 2 / 3 + 0) / 2, "AP50": 5 / 12})
    # 11 points: precision 1 at recalls 0 to 0.5, 2/3 at 0.6 to 1.
    figures = dataset.score(results, ["mAP"], {"eval_mode": "11points"}).figures
    assert figures["mAP"] == pytest.approx((6 / 11 + 5 / 11 * 2 / 3) / 2)
    # At 0.6, recall 1/2 is all.
    figures = dataset.score(results, ["mAP"], {"iou_thrs": [0.5, 0.6]}).figures
    assert figures == pytest.approx({"mAP": (5 / 12 + 1 / 4) / 2, "AP50": 5 / 12, "AP60": 1 / 4})


def test_equal_overlaps_go_to_the_object_that_counts(tmp_path):
    dataset = write(tmp_path / "VOC2012", {"a": [("cat", SQUARE, 1), ("cat", SQUARE, 0)]})
    assert dataset.score([result((0, 0.9, SQUARE))], ["mAP"], {}).figures["mAP"] == 1


def test_table(by_hand):
    dataset, results = by_hand
    (table,) = dataset.score(results, ["mAP"], {}).tables
    assert [line.split() for line in table.splitlines()] == [
        ["iou_thr:", "0.5"],
        ["class", "gts", "dets", "recall", "ap"],
        ["cat", "2", "5", "1.000", "0.833"],
        ["dog", "1", "1", "0.000", "0.000"],
        ["emu", "0", "1", "0.000", "0.000"],
        ["mAP", "0.417"],
    ]


def test_recall_by_hand(by_hand):
    dataset, results = by_hand
    # Objects that count: SQUARE in a, SQUARE and FAR in b.  One detection of b: HALF; two: SQUARE finds it better.
    options = {"iou_thr": [0.5, 0.9], "proposal_nums": [1, 2]}
    assert dataset.score(results, ["recall"], options).figures == pytest.approx(
        {"recall@1@0.5": 2 / 3, "recall@1@0.9": 1 / 3, "recall@2@0.5": 2 / 3, "recall@2@0.9": 2 / 3}
        | {"AR@1": 1 / 2, "AR@2": 2 / 3}
    )
    turned = [ImageResult(image.boxes[::-1], image.scores[::-1], image.labels[::-1]) for image in results]
    assert dataset.score(turned, ["recall"], options).figures == dataset.score(results, ["recall"], options).figures


def iou(first, second):
    """Count the pixels that two boxes of whole pixels share."""
    pixels = [
        {(x, y) for x in range(int(x1), int(x2) + 1) for y in range(int(y1), int(y2) + 1)}
        for x1, y1, x2, y2 in (first, second)
    ]
    return len(pixels[0] & pixels[1]) / len(pixels[0] | pixels[1])


def slow_ap(images, threshold, mode):
    """Compute average precision detection by detection, from the definition."""
    total = sum(not difficult for objects, _ in images for _, difficult in objects)
    outcomes = []  # (score, right)
    for objects, actual in images:
        used = set()
        for score, box in actual:
            overlaps = [(iou(box, place), not difficult) for place, difficult in objects]
            best = max(range(len(overlaps)), key=overlaps.__getitem__, default=None)
            if best is None or overlaps[best][0] < threshold:
                outcomes.append((score, False))
            elif not objects[best][1]:
                outcomes.append((score, best not in used))
                used.add(best)
    outcomes.sort(key=lambda outcome: -outcome[0])
    curve, right = [], 0
    for position, (_, is_right) in enumerate(outcomes, 1):
        right += is_right
        curve.append((right / total, right / position))
    if mode == "area":
        return sum(
            max(precision for recall, precision in curve if recall >= step / total) / total
            for step in range(1, right + 1)
        )
    return sum(max((p for recall, p in curve if recall >= point), default=0) for point in np.arange(0, 1.01, 0.1)) / 11


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """Images with many overlapping objects and detections of whole pixels."""
    rng = np.random.default_rng(3)

    def boxes(count):
        corners = rng.integers(0, 12, (count, 2))
        return np.concatenate([corners, corners + rng.integers(2, 9, (count, 2))], axis=1).tolist()

    objects = {
        f"{number:06d}": [(CLASSES[rng.integers(3)], box, int(rng.random() < 0.2)) for box in boxes(rng.integers(0, 7))]
        for number in range(25)
    }
    scores = iter(rng.permutation(1000) / 1000)
    results = []
    for of_image in objects.values():
        actual = [(int(rng.integers(3)), box) for box in boxes(3)]
        for name, box, _ in [*of_image, *of_image]:
            label = CLASSES.index(name) if rng.random() < 0.7 else int(rng.integers(3))
            actual.append((label, [edge + rng.integers(-1, 2) for edge in box]))
        rows = [(label, float(np.float32(next(scores))), box) for label, box in actual]
        results.append(result(*sorted(rows, key=lambda row: -row[1])))
    return write(tmp_path_factory.mktemp("voc") / "VOC2007", objects), objects, results


@pytest.mark.parametrize(("mode", "threshold"), [("area", 0.5), ("11points", 0.5), ("area", 0.7), ("11points", 0.3)])
def test_mean_ap_equals_a_second_implementation(crowded, mode, threshold):
    dataset, objects, results = crowded
    expected = []
    for label, name in enumerate(CLASSES):
        images = []
        for of_image, detections in zip(objects.values(), results, strict=True):
            present = sorted(
                ((box, difficult) for kind, box, difficult in of_image if kind == name), key=lambda o: o[1]
            )
            rows = zip(detections.labels, detections.scores.tolist(), detections.boxes.tolist(), strict=True)
            images.append((present, [(score, box) for kind, score, box in rows if kind == label]))
        expected.append(slow_ap(images, threshold, mode))
    figures = dataset.score(results, ["mAP"], {"eval_mode": mode, "iou_thrs": threshold}).figures
    assert figures["mAP"] == pytest.approx(np.mean(expected), abs=1e-12)
    assert 0.05 < figures["mAP"] < 0.9


def test_recall_equals_a_second_implementation(crowded):
    dataset, objects, results = crowded
    recalled = total = 0
    for of_image, detected in zip(objects.values(), results, strict=True):
        present = [box for _, box, difficult in of_image if not difficult]
        total += len(present)
        pairs = [
            (iou(box, other), -row, -column)
            for row, box in enumerate(present)
            for column, other in enumerate(detected.boxes[:5])
        ]
        rows, columns = set(), set()
        for overlap, row, column in sorted(pairs, reverse=True):
            if row not in rows and column not in columns:
                rows.add(row)
                columns.add(column)
                recalled += overlap >= 0.5
    figures = dataset.score(results, ["recall"], {"proposal_nums": 5}).figures
    assert figures == pytest.approx({"recall@5@0.5": recalled / total})
    assert 0.2 < recalled / total < 0.9


def test_mode_follows_the_year(crowded, by_hand, tmp_path):
    dataset, _, results = crowded
    assert dataset.score(results, ["mAP"], {}) == dataset.score(results, ["mAP"], {"eval_mode": "11points"})
    other = write(tmp_path / "other", {"a": []})
    with pytest.raises(ValueError, match="neither VOC2007 nor VOC2012, so mAP needs eval_mode=11points or area"):
        other.check(["mAP"], {})
    other.check(["recall"], {})
    with pytest.raises(ValueError, match="eval_mode must be 11points or area, got 'points'"):
        other.check(["mAP"], {"eval_mode": "points"})


def test_an_image_set_without_objects(tmp_path):
    dataset = write(tmp_path / "VOC2007", {"a": [], "b": []})
    results = [result(), result((0, 0.5, SQUARE))]
    assert dataset.score(results, ["mAP"], {}).figures == {"mAP": 0.0, "AP50": 0.0}
    assert set(dataset.score(results, ["recall"], {}).figures.values()) == {-1.0}


def test_names_that_are_no_classes(tmp_path):
    """MAP would be 0, as if the detector were bad."""
    dataset = write(tmp_path / "VOC2007", {"a": [("Cat", SQUARE, 0)], "b": [("DOG", SQUARE, 0)]})
    with pytest.raises(ValueError, match=r"has no object of the classes .*; its objects are called Cat, DOG$"):
        Evaluation(dataset, ["mAP"])
    some = write(tmp_path / "VOC2012", {"a": [("Cat", SQUARE, 0)], "b": [(CLASSES[0], SQUARE, 0)]})
    Evaluation(some, ["mAP", "recall"])


def test_refusals(by_hand, tmp_path):
    dataset, _ = by_hand
    with pytest.raises(ValueError, match="unknown option classwise; options: iou_thrs, proposal_nums, eval_mode"):
        dataset.check(["mAP"], {"classwise": True})
    with pytest.raises(ValueError, match="metric 'bbox' is not one of this data set; VocDataset has mAP, recall"):
        dataset.check(["bbox"], {})
    (dataset.annotation_dir / "a.xml").write_text("<annotation>")
    for options in ({"iou_thr": "half"}, {"proposal_nums": 1.5}):
        with pytest.raises(ValueError, match=f"{'iou_thrs' if 'iou_thr' in options else 'proposal_nums'} must be"):
            dataset.check(["mAP"], options)
    with pytest.raises(ValueError, match=r"a\.xml is not an annotation in VOC's format"):
        dataset.check(["mAP"], {})
    (dataset.annotation_dir / "a.xml").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.xml"):
        dataset.check(["recall"], {})
    (tmp_path / "none.txt").touch()
    with pytest.raises(ValueError, match="the data set has no images"):
        VocDataset(tmp_path / "none.txt", tmp_path, CLASSES).check(["recall"], {})


def test_names_of_images_may_have_spaces(tmp_path):
    (tmp_path / "test.txt").write_text("my photo\r\n\n other \n")
    dataset = VocDataset(tmp_path / "test.txt", tmp_path, CLASSES)
    assert [image.path.name for image in dataset.images] == ["my photo.jpg", "other.jpg"]
