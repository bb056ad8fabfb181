"""Evaluation on data sets in COCO's, VOC's, DOTA's and YOLO's formats, with MMDetection's figures and files.

`dataset_of` opens the test data set of a config, `test` runs an exported detector over it as ``mmort test`` does, and
`evaluate` measures any detector: whatever takes paths of images and returns `mmort.Detections`.  Torch is not needed.
"""

from mmort.evaluate.analysis import Analysis, analyze
from mmort.evaluate.browsing import browse
from mmort.evaluate.class_selection import select_classes
from mmort.evaluate.classification import ClassificationDataset, ClassificationOptions
from mmort.evaluate.coco import Coco90Dataset, CocoDataset, Objects365V1Dataset
from mmort.evaluate.coco_metrics import CocoOptions
from mmort.evaluate.coco_panoptic import CocoPanopticDataset, PanopticOptions
from mmort.evaluate.concatenated import ConcatenatedDataset
from mmort.evaluate.configured import batch_size_of, dataset_of, metric_options
from mmort.evaluate.dataset import Dataset, DatasetImage, DatasetWarning, Metrics, SubmissionDataset
from mmort.evaluate.dota import DotaDataset, DotaOptions
from mmort.evaluate.evaluation import Evaluation, Predict, collect, evaluate
from mmort.evaluate.lvis import LvisDataset, LvisOptions
from mmort.evaluate.poses import PoseDataset, PoseOptions
from mmort.evaluate.results import ImageResult, write_results
from mmort.evaluate.saved_results import read_results
from mmort.evaluate.segmentation import SegmentationDataset, SegmentationOptions
from mmort.evaluate.testing import PipelineWarning, TestOptions, TestResult, TrainedNetwork, score_results, test
from mmort.evaluate.text_regions import HmeanOptions, TextRegionDataset
from mmort.evaluate.unlabelled import UnlabelledDataset
from mmort.evaluate.voc import VocDataset, VocOptions
from mmort.evaluate.words import WordDataset, WordOptions
from mmort.evaluate.yolo import YoloDataset

__all__ = [
    "Analysis",
    "ClassificationDataset",
    "ClassificationOptions",
    "Coco90Dataset",
    "CocoDataset",
    "CocoOptions",
    "CocoPanopticDataset",
    "ConcatenatedDataset",
    "Dataset",
    "DatasetImage",
    "DatasetWarning",
    "DotaDataset",
    "DotaOptions",
    "Evaluation",
    "HmeanOptions",
    "ImageResult",
    "LvisDataset",
    "LvisOptions",
    "Metrics",
    "Objects365V1Dataset",
    "PanopticOptions",
    "PipelineWarning",
    "PoseDataset",
    "PoseOptions",
    "Predict",
    "SegmentationDataset",
    "SegmentationOptions",
    "SubmissionDataset",
    "TestOptions",
    "TestResult",
    "TextRegionDataset",
    "TrainedNetwork",
    "UnlabelledDataset",
    "VocDataset",
    "VocOptions",
    "WordDataset",
    "WordOptions",
    "YoloDataset",
    "analyze",
    "batch_size_of",
    "browse",
    "collect",
    "dataset_of",
    "evaluate",
    "metric_options",
    "read_results",
    "score_results",
    "select_classes",
    "test",
    "write_results",
]
