"""``mmort browse``: the ground truth of a data set, drawn on its images."""

import json

import pytest

from mmort import demo
from mmort.predict import read_image
from tests.cli.running import misused, refused, run

DATA = "--ann", demo.ANNOTATIONS, "--img-dir", demo.IMAGES[0].parent


@pytest.mark.parametrize("arguments", [DATA, (demo.CONFIG, *DATA)])
def test_images_show_the_objects(arguments, tmp_path):
    assert run("browse", *arguments, "-o", tmp_path / "out") == (0, f"wrote {tmp_path}/out (4 annotated images)\n", "")
    for path in demo.IMAGES:
        drawn, image = read_image(tmp_path / "out" / path.name), read_image(path)
        assert drawn.shape == image.shape
        assert (drawn != image).mean() > 0.05
    message = f"mmort: error: annotated image exists: {tmp_path}/out/{demo.IMAGES[0].name}; --force replaces it\n"
    assert refused("browse", *arguments, "-o", tmp_path / "out") == message
    assert run("browse", *arguments, "-o", tmp_path / "out", "--force")[0] == 0


def test_some_classes(tmp_path):
    """The first image has a zero, and no nine."""
    for name, changes in (("zero", True), ("nine", False)):
        assert run("browse", *DATA, "-o", tmp_path / name, "--classes", name)[0] == 0
        drawn, image = read_image(tmp_path / name / demo.IMAGES[0].name), read_image(demo.IMAGES[0])
        assert (drawn != image).any() == changes


def test_what_cannot_be_drawn(tmp_path):
    annotations = json.loads(demo.ANNOTATIONS.read_text())
    annotations["images"][1]["file_name"] = "nowhere.png"
    (tmp_path / "a.json").write_text(json.dumps(annotations))
    code, out, err = run("browse", "--ann", tmp_path / "a.json", *DATA[2:], "-o", tmp_path / "out")
    assert (code, out) == (1, f"wrote {tmp_path}/out (3 annotated images)\n")
    assert "1 images could not be drawn, the first: " in err
    del annotations["annotations"]
    (tmp_path / "a.json").write_text(json.dumps(annotations))
    command = "browse", "--ann", tmp_path / "a.json", *DATA[2:], "-o", tmp_path / "none"
    assert "browse: this CocoDataset has no objects with boxes" in refused(*command)
    assert "browse needs a CONFIG, --ann and --img-dir" in misused("browse", "-o", tmp_path)
    assert "--cfg-options change a CONFIG" in misused("browse", *DATA, "-o", tmp_path, "--cfg-options", "a=1")
