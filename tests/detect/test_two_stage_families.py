"""The families that vary the second stage: batches, empty results, and what each adds, by hand."""

import pytest
import torch

from mmort.detect import build
from mmort.detect.parts.roi_extractor import scaled
from tests.detect.two_stage_cases import CASES, config_of

SHAPES = torch.tensor([[64, 96], [56, 72]])


def images():
    torch.manual_seed(0)
    batch = torch.zeros(2, 3, 64, 96)
    for row, (height, width) in zip(batch, SHAPES.tolist(), strict=True):
        row[:, :height, :width] = torch.randn(3, height, width)
    return batch


@pytest.fixture(scope="module", params=CASES)
def detector(request):
    torch.manual_seed(1)
    config = config_of(request.param)
    config["model"]["test_cfg"].get("rpn") and config["model"]["test_cfg"]["rpn"].update(max_per_img=40, nms_pre=40)
    if "rcnn" in config["model"]["test_cfg"]:
        config["model"]["test_cfg"]["rcnn"] |= {"max_per_img": 15}
    detector = build(config)
    for name, value in detector.state_dict().items():
        if "fc_cls.weight" in name:
            value *= 20
    return request.param, detector


def test_images_of_a_batch_do_not_influence_each_other(detector):
    name, detector = detector
    assert detector.family == {"GRoIE": "Mask R-CNN"}.get(name, name)
    together = detector(images(), SHAPES)
    assert len(together) == len(detector.output_names)
    assert (together[1] >= 0).sum() > 5
    assert (together[0][..., 4].diff(dim=1) <= 0).all()
    for index in range(2):
        alone = detector(images()[index : index + 1], SHAPES[index : index + 1])
        for output, output_alone in zip(together, alone, strict=True):
            torch.testing.assert_close(output[index], output_alone[0], rtol=1e-3, atol=2e-3)


def test_regions_grow_around_their_centres():
    rois = torch.tensor([[1.0, 10, 20, 30, 60]])
    torch.testing.assert_close(scaled(rois, 1.5), torch.tensor([[1.0, 5, 10, 35, 70]]))


def test_mask_scores_multiply_and_reorder():
    """Detections are sorted by the product of their score and the overlap expected of their class."""
    head = build(config_of("Mask Scoring R-CNN")).roi_head
    head.mask_iou_head.forward = lambda features, masks: torch.tensor([[0.0, 0.2, 0.9]]).expand(len(masks), -1)
    head.mask_roi_extractor.forward = lambda features, rois: torch.zeros(len(rois), 32, 14, 14)
    dets = torch.tensor([[[0.0, 0, 8, 8, 0.8], [1, 1, 9, 9, 0.5], [0, 0, 0, 0, 0]]])
    dets, labels, masks = head.with_masks([], dets, torch.tensor([[1, 2, -1]]))
    torch.testing.assert_close(dets[0, :, 4], torch.tensor([0.45, 0.16, 0]))
    assert dets[0, 0, :4].tolist() == [1, 1, 9, 9]
    assert labels.tolist() == [[2, 1, -1]]
    assert masks[0, :2].any((1, 2)).all()
    assert not masks[0, 2].any()


def test_htc_takes_the_mean_of_masks_in_version_2():
    config = config_of("HTC")
    assert build(config).roi_head.averages_masks
    config["model"]["data_preprocessor"] = {"type": "DetDataPreprocessor"}
    assert not build(config).roi_head.averages_masks


def test_proposals_are_shares_of_the_image():
    head = build(config_of("QueryInst")).rpn_head
    head.init_proposal_bboxes.weight[0] = torch.tensor([0.5, 0.25, 0.5, 0.1])
    boxes, features = head(torch.tensor([[[96.0, 64, 96, 64]], [[72, 56, 72, 56]]]))
    torch.testing.assert_close(boxes[:, 0], torch.tensor([[24, 12.8, 72, 19.2], [18, 11.2, 54, 16.8]]))
    assert features.shape == (2, 12, 32)
