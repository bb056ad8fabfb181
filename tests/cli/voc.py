"""The demo's pictures and digits in PASCAL VOC's format."""

import json
from pathlib import Path

from mmort import demo


def write(directory):
    """Write the data set below a directory; return the arguments of a command that name it."""
    folder = directory / "VOC2007"
    (folder / "JPEGImages").mkdir(parents=True)
    (folder / "Annotations").mkdir()
    annotations = json.loads(demo.ANNOTATIONS.read_text())
    names = {category["id"]: category["name"] for category in annotations["categories"]}
    for image in annotations["images"]:
        stem = Path(image["file_name"]).stem
        source = demo.IMAGES[0].with_name(image["file_name"])
        (folder / "JPEGImages" / f"{stem}.jpg").symlink_to(source)  # OpenCV looks at the content
        objects = []
        for entry in annotations["annotations"]:
            if entry["image_id"] == image["id"]:
                x, y, width, height = entry["bbox"]
                corners = {"xmin": x + 1, "ymin": y + 1, "xmax": x + width, "ymax": y + height}
                box = "".join(f"<{tag}>{value}</{tag}>" for tag, value in corners.items())
                objects.append(f"<object><name>{names[entry['category_id']]}</name><bndbox>{box}</bndbox></object>")
        (folder / "Annotations" / f"{stem}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")
    (folder / "test.txt").write_text("\n".join(path.stem for path in demo.IMAGES))
    return "--ann", folder / "test.txt", "--img-dir", folder
