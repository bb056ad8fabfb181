"""The types of MMSegmentation's data sets, and the classes of their maps."""

from __future__ import annotations

from typing import NamedTuple

from mmort.configs.class_names import COCO


class MapType(NamedTuple):
    """The defaults of a type of data sets, for entries that a config leaves out."""

    img_suffix: str = ".jpg"
    seg_map_suffix: str = ".png"
    reduce_zero_label: bool = False
    classes: tuple[str, ...] = ()


CITYSCAPES = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
)  # fmt: skip
VOC = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
VESSELS = "background", "vessel"
AERIAL = "impervious_surface", "building", "low_vegetation", "tree", "car", "clutter"
LOVEDA = "background", "building", "road", "water", "barren", "forest", "agricultural"
ISAID = (
    "background", "ship", "store_tank", "baseball_diamond", "tennis_court", "basketball_court", "Ground_Track_Field",
    "Bridge", "Large_Vehicle", "Small_Vehicle", "Helicopter", "Swimming_pool", "Roundabout", "Soccer_ball_field",
    "plane", "Harbor",
)  # fmt: skip
CONTEXT = (
    "aeroplane", "bag", "bed", "bedclothes", "bench", "bicycle", "bird", "boat", "book", "bottle", "building", "bus",
    "cabinet", "car", "cat", "ceiling", "chair", "cloth", "computer", "cow", "cup", "curtain", "dog", "door", "fence",
    "floor", "flower", "food", "grass", "ground", "horse", "keyboard", "light", "motorbike", "mountain", "mouse",
    "person", "plate", "platform", "pottedplant", "road", "rock", "sheep", "shelves", "sidewalk", "sign", "sky",
    "snow", "sofa", "table", "track", "train", "tree", "truck", "tvmonitor", "wall", "water", "window", "wood",
)  # fmt: skip
ADE20K = (
    "wall", "building", "sky", "floor", "tree", "ceiling", "road", "bed ", "windowpane", "grass", "cabinet",
    "sidewalk", "person", "earth", "door", "table", "mountain", "plant", "curtain", "chair", "car", "water",
    "painting", "sofa", "shelf", "house", "sea", "mirror", "rug", "field", "armchair", "seat", "fence", "desk",
    "rock", "wardrobe", "lamp", "bathtub", "railing", "cushion", "base", "box", "column", "signboard",
    "chest of drawers", "counter", "sand", "sink", "skyscraper", "fireplace", "refrigerator", "grandstand", "path",
    "stairs", "runway", "case", "pool table", "pillow", "screen door", "stairway", "river", "bridge", "bookcase",
    "blind", "coffee table", "toilet", "flower", "book", "hill", "bench", "countertop", "stove", "palm",
    "kitchen island", "computer", "swivel chair", "boat", "bar", "arcade machine", "hovel", "bus", "towel", "light",
    "truck", "tower", "chandelier", "awning", "streetlight", "booth", "television receiver", "airplane", "dirt track",
    "apparel", "pole", "land", "bannister", "escalator", "ottoman", "bottle", "buffet", "poster", "stage", "van",
    "ship", "fountain", "conveyer belt", "canopy", "washer", "plaything", "swimming pool", "stool", "barrel",
    "basket", "waterfall", "tent", "bag", "minibike", "cradle", "oven", "ball", "food", "step", "tank", "trade name",
    "microwave", "pot", "animal", "bicycle", "lake", "dishwasher", "screen", "blanket", "sculpture", "hood", "sconce",
    "vase", "traffic light", "tray", "ashcan", "fan", "pier", "crt screen", "plate", "monitor", "bulletin board",
    "shower", "radiator", "glass", "clock", "flag",
)  # fmt: skip
COCO_STUFF = (
    *COCO, "banner", "blanket", "branch", "bridge", "building-other", "bush", "cabinet", "cage", "cardboard",
    "carpet", "ceiling-other", "ceiling-tile", "cloth", "clothes", "clouds", "counter", "cupboard", "curtain",
    "desk-stuff", "dirt", "door-stuff", "fence", "floor-marble", "floor-other", "floor-stone", "floor-tile",
    "floor-wood", "flower", "fog", "food-other", "fruit", "furniture-other", "grass", "gravel", "ground-other",
    "hill", "house", "leaves", "light", "mat", "metal", "mirror-stuff", "moss", "mountain", "mud", "napkin", "net",
    "paper", "pavement", "pillow", "plant-other", "plastic", "platform", "playingfield", "railing", "railroad",
    "river", "road", "rock", "roof", "rug", "salad", "sand", "sea", "shelf", "sky-other", "skyscraper", "snow",
    "solid-other", "stairs", "stone", "straw", "structural-other", "table", "tent", "textile-other", "towel", "tree",
    "vegetable", "wall-brick", "wall-concrete", "wall-other", "wall-panel", "wall-stone", "wall-tile", "wall-wood",
    "water-other", "waterdrops", "window-blind", "window-other", "wood",
)  # fmt: skip

TYPES: dict[str, MapType] = {
    "ADE20KDataset": MapType(reduce_zero_label=True, classes=ADE20K),
    "BDD100KDataset": MapType(classes=CITYSCAPES),
    "BaseSegDataset": MapType(),
    "COCOStuffDataset": MapType(seg_map_suffix="_labelTrainIds.png", classes=COCO_STUFF),
    "ChaseDB1Dataset": MapType(".png", "_1stHO.png", classes=VESSELS),
    "CityscapesDataset": MapType("_leftImg8bit.png", "_gtFine_labelTrainIds.png", classes=CITYSCAPES),
    "DRIVEDataset": MapType(".png", "_manual1.png", classes=VESSELS),
    "DarkZurichDataset": MapType("_rgb_anon.png", "_gt_labelTrainIds.png", classes=CITYSCAPES),
    "HRFDataset": MapType(".png", ".png", classes=VESSELS),
    "ISPRSDataset": MapType(".png", ".png", True, AERIAL),
    "LoveDADataset": MapType(".png", ".png", True, LOVEDA),
    "NightDrivingDataset": MapType("_leftImg8bit.png", "_gtCoarse_labelTrainIds.png", classes=CITYSCAPES),
    "PascalContextDataset": MapType(classes=("background", *CONTEXT)),
    "PascalContextDataset59": MapType(reduce_zero_label=True, classes=CONTEXT),
    "PascalVOCDataset": MapType(classes=VOC),
    "PotsdamDataset": MapType(".png", ".png", True, AERIAL),
    "STAREDataset": MapType(".png", ".ah.png", classes=VESSELS),
    "iSAIDDataset": MapType(".png", "_instance_color_RGB.png", classes=ISAID),
}
"""The supported types of data sets, with their defaults."""
