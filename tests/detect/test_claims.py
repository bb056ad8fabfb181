"""What families claim of a config, and the list of them."""

import pytest

from mmort.configs.layout import DetectorConfig
from mmort.detect import list_families, unsupported
from mmort.detect.claims import family_of
from mmort.detect.entries import DETECTOR, PARTS

UPRIGHT, ROTATED = {"type": "DeltaXYWHBBoxCoder"}, {"type": "mmrotate.DeltaXYWHTRBBoxCoder"}


def claimed(**model):
    """Return the name of the family of a model."""
    return family_of(DetectorConfig({"model": {"type": "Any", **model}})).__name__


@pytest.mark.parametrize("upside_down", [False, True])
@pytest.mark.parametrize(
    ("heads", "family"),
    [
        ({"rpn_head": "RPNHead"}, "RPN"),
        ({"rpn_head": "RPNHead", "roi_head": "StandardRoIHead"}, "FasterRCNN"),
        ({"rpn_head": "RPNHead", "roi_head": "StandardRoIHead", "semantic_head": "PanopticFPNHead"}, "PanopticFPN"),
        ({"rpn_head": "RPNHead", "bbox_head": "ATSSHead", "query_head": "CoDINOHead", "mask_head": "Any"}, "CoDINO"),
        ({"bbox_head": "YOLACTHead", "mask_head": "YOLACTProtonet"}, "YOLACT"),
        ({"mask_head": "SOLOHead"}, "SOLO"),
        ({"panoptic_head": "MaskFormerHead", "panoptic_fusion_head": "MaskFormerFusionHead"}, "MaskFormer"),
    ],
)
def test_the_last_head_names_the_family(heads, family, upside_down):
    entries = list(heads.items())[:: -1 if upside_down else 1]
    assert claimed(**{entry: {"type": name} for entry, name in entries}) == family


def test_the_last_of_a_list_of_heads_names_the_family():
    heads = [{"type": "RotatedRetinaRefineHead"}, {"type": "mmrotate.R3RefineHead"}]
    assert claimed(bbox_head={"type": "RotatedRetinaHead"}, refine_heads=heads) == "R3Det"
    assert claimed(bbox_head_init={"type": "S2AHead"}, bbox_head_refine=[{"type": "S2ARefineHead"}]) == "S2ANet"


@pytest.mark.parametrize(
    ("entry", "name", "families"),
    [
        ("bbox_head", "RetinaHead", ("RetinaNet", "RotatedRetinaNet")),
        ("roi_head", "StandardRoIHead", ("FasterRCNN", "OrientedRCNN")),
        ("roi_head", "CascadeRoIHead", ("CascadeRCNN", "RoITransformer")),
    ],
)
def test_the_box_coder_chooses_between_families_of_a_type(entry, name, families):
    for coder, family in zip((UPRIGHT, ROTATED), families, strict=True):
        head = {"bbox_coder": coder} if entry == "bbox_head" else {"bbox_head": [{}, {"bbox_coder": coder}]}
        assert claimed(**{entry: {"type": name, **head}}) == family


def test_a_type_of_model_chooses_between_families_of_a_type():
    assert claimed(bbox_head={"type": "YOLOXHead"}) == "YOLOX"
    assert claimed(type="mmyolo.YOLODetector", bbox_head={"type": "YOLOXHead"}) == "YOLOXOfMMYOLO"
    with pytest.raises(ValueError, match=r"'RetinaHead' of model.type 'YOLODetector' is not supported"):
        claimed(type="YOLODetector", bbox_head={"type": "RetinaHead"})
    with pytest.raises(ValueError, match=r"'YOLOv8Head' of model.type 'Any' is not supported"):
        claimed(bbox_head={"type": "YOLOv8Head"})


def test_models_around_a_detector_are_known_by_name():
    detector = {"bbox_head": {"type": "YOLOXHead"}}
    assert claimed(type="ByteTrack", detector=detector) == "YOLOX"
    with pytest.raises(ValueError, match=r"model\.type 'Detectron2Wrapper' without a head"):
        claimed(type="Detectron2Wrapper", detector=detector)
    wrapped = {"type": "Detectron2Wrapper", "detector": {"backbone": {"name": "resnet"}}}
    assert [problem for problem in unsupported({"model": wrapped}) if "preprocessing" not in problem] == [
        "model.type 'Detectron2Wrapper' without a head, such as bbox_head or roi_head, is not supported"
    ]


def test_all_families_are_listed():
    families = list_families()
    claimed_heads = set(PARTS.types[DETECTOR]).union(*PARTS.of_models.values())
    assert {head for family in families for head in family.heads} == claimed_heads
    assert len({family.name for family in families}) == len(families)
    assert all(family.summary and family.entries for family in families)
    (retinanet,) = (family for family in families if family.name == "RotatedRetinaNet")
    assert retinanet.heads == ("KFIoURRetinaHead", "RetinaHead", "RotatedRetinaHead")
