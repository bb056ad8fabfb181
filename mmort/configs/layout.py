"""Where MMDetection's versions put what in a config: the one module that knows a config's top level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from mmort.configs.captions import Prompt
from mmort.configs.data_preprocessor import DataPreprocessor, read_data_preprocessor
from mmort.configs.data_sets import CLASSES_OF_TYPES, classes_of
from mmort.configs.packages import Package, package_of
from mmort.configs.schema import Config, plain_type, read_entries
from mmort.configs.test_pipeline import BatchShapes, LetterResize, TestPipeline, read_steps

READ_ENTRIES = (
    *("data", "data_preprocessor", "data_root", "evaluation", "model", "test_cfg", "test_dataloader"),
    *("test_evaluator", "test_pipeline"),
)
"""Entries of a config's top level that are read when a detector is evaluated."""

_ENTRIES_OF_2 = (
    *("checkpoint_config", "data", "dist_params", "evaluation", "img_norm_cfg", "log_config", "lr_config"),
    *("optimizer", "optimizer_config", "runner", "total_epochs", "workflow"),
)
_ENTRIES_OF_3 = (
    *("default_hooks", "default_scope", "env_cfg", "log_processor", "optim_wrapper", "param_scheduler"),
    *("test_dataloader", "test_evaluator", "train_dataloader", "val_dataloader", "val_evaluator", "vis_backends"),
    "visualizer",
)
_STEPS_OF_2 = ("Collect", "DefaultFormatBundle", "ImageToTensor", "MultiScaleFlipAug")


class DetectorConfig:
    """A config of MMDetection 2 or 3, by what its entries mean; each is read when it is asked for.

    Parameters
    ----------
    config : dict
        As `mmort.configs.read_config` returns it.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    @cached_property
    def version(self) -> Literal[2, 3]:
        """The version of MMDetection that the config is for: 3 if nothing in it says otherwise.

        The versions select boxes a little differently and give the defaults of steps other values.
        """
        if self.data_preprocessor_entries is not None or any(name in self._config for name in _ENTRIES_OF_3):
            return 3
        if any(name in self._config for name in _ENTRIES_OF_2):
            return 2
        beside = self._config.get("test_cfg")
        if isinstance(beside, dict) and "type" not in beside and beside:  # that of version 3 names a loop
            return 2
        return 2 if _has_step(self._config.get("test_pipeline"), _STEPS_OF_2) else 3

    @property
    def package(self) -> Package | None:
        """The other package of OpenMMLab that the config is for, if it is."""
        return package_of(self._config)

    @property
    def has_model(self) -> bool:
        """Whether the config describes a model; one that only evaluates or prepares images need not."""
        return isinstance(self._config.get("model"), dict)

    @property
    def outer_model(self) -> Config:
        """The config's ``model``.

        Raises
        ------
        ValueError
            If there is none.
        """
        model = self._config.get("model")
        if not isinstance(model, dict):
            deploy = (
                ", got a deploy config of MMDeploy, which is not needed" if "codebase_config" in self._config else ""
            )
            raise ValueError(f"detect.build: the config must have a dict 'model'{deploy}")
        return model

    @property
    def around(self) -> Config | None:
        """The model that has the detector as its ``detector``: of a student and a teacher, or a tracker."""
        return self.outer_model if isinstance(self.outer_model.get("detector"), dict) else None

    @cached_property
    def model(self) -> Config:
        """The detector's config; ValueError if there is none."""
        if self.around is None:
            return self.outer_model
        return {"data_preprocessor": self.around.get("data_preprocessor"), **self.around["detector"]}

    @cached_property
    def test_cfg(self) -> Config:
        """How detections are selected: inside the model since MMDetection 2.4, beside it before."""
        beside = {} if self.version == 3 else self._config.get("test_cfg")  # MMDetection 3's is the test loop's
        test_cfg: Any = self.model.get("test_cfg") or beside or {}
        if isinstance(test_cfg, (list, tuple)):  # of a head with queries and of those beside it
            test_cfg, beside = test_cfg[0], test_cfg[1:]
            if self.model.get("mask_head") is not None and beside and isinstance(beside[0], dict):
                test_cfg = {**test_cfg, "mask_thr_binary": beside[0].get("mask_thr_binary")}
        entries: Config = test_cfg
        return entries

    @property
    def custom_hooks(self) -> Any:
        """The hooks that MMDetection calls around training and testing, a list of dicts or None."""
        return self._config.get("custom_hooks")

    @cached_property
    def data_preprocessor(self) -> DataPreprocessor:
        """The preprocessing that is in the model in MMDetection 3."""
        entries = self.data_preprocessor_entries
        scope = self._config.get("default_scope")
        return DataPreprocessor() if entries is None else read_data_preprocessor(entries, scope)

    @property
    def data_preprocessor_entries(self) -> Any:
        """Its config, or None; if the model has none, MMEngine takes that beside the model."""
        model = self._config.get("model")
        if isinstance(model, dict) and "data_preprocessor" in model:
            return model["data_preprocessor"]
        return self._config.get("data_preprocessor")

    @cached_property
    def test_pipeline(self) -> TestPipeline:
        """The pipeline of the test data set, or ``test_pipeline``.

        Raises
        ------
        ValueError
            If there is none, or it has a step that is not supported; the message names it.
        """
        if not self.has_test_pipeline:
            raise ValueError("preprocessing: the config has no test pipeline")
        return read_steps(self.test_steps)

    @property
    def image_channels(self) -> int:
        """The channels of the images that the backbone takes."""
        model = self._config.get("model")
        backbone = model.get("backbone") if isinstance(model, dict) else None
        entries = backbone if isinstance(backbone, dict) else {}
        names = "in_channels", "in_chans", "input_channels"  # MMDetection's, timm's, MMYOLO's
        channels = next((entries[name] for name in names if name in entries), 3)
        return channels if type(channels) is int else 3  # what is no number is refused with the backbone

    @cached_property
    def batch_shapes(self) -> BatchShapes | None:
        """The sizes to which MMYOLO's test data set pads images by their proportions, if its pipeline has that step.

        Raises
        ------
        ValueError
            If it has an entry that is not supported.
        """
        entries = self._test_data_set.get("batch_shapes_cfg")
        if entries is None or not self.has_test_pipeline:
            return None
        if not any(isinstance(step, LetterResize) for _, step in self.test_pipeline.steps):
            return None
        return read_entries("batch_shapes_cfg", BatchShapes, entries)

    @property
    def test_time_augmentation(self) -> tuple[str, ...]:
        """The parts of MMDetection's test-time augmentation that a file lacks: it detects in one view, at one scale."""
        views = []
        if self.batch_shapes is not None and self.batch_shapes.batch_size > 1:
            views.append(
                f"batches of {self.batch_shapes.batch_size} images of similar proportions (batch_shapes_cfg): each "
                "image is padded as one that is a batch of its own"
            )
        if self._config.get("tta_model") or self._config.get("tta_pipeline"):
            views.append("test-time augmentation (tta_model): the file detects in one view, at one scale")
        if self.has_test_pipeline and self.test_pipeline.sizes > 1:
            size, further_sizes = self.test_pipeline.size, self.test_pipeline.sizes - 1
            views.append(f"{further_sizes} more of img_scale: the file is for the first, {size}")
        return tuple(views)

    @property
    def has_test_pipeline(self) -> bool:
        """Whether there is one."""
        return bool(self.test_steps)

    @cached_property
    def test_steps(self) -> Any:
        """The test pipeline's config, or None."""
        return self._test_data_set.get("pipeline", self._config.get("test_pipeline"))

    @property
    def _test_data_set(self) -> Mapping[str, Any]:
        """The test data set that has the pipeline; an empty one if none has."""
        data_set: Any = self._test_data or {}
        while isinstance(data_set, list) or "pipeline" not in data_set:  # data sets that repeat or concatenate others
            data_set = (
                data_set[0] if isinstance(data_set, list) else data_set.get("dataset") or data_set.get("datasets")
            )
            if not data_set:
                return {}
        data: Mapping[str, Any] = data_set
        return data

    @property
    def outer_test_data_set(self) -> Mapping[str, Any]:
        """The config of the test data set, which may hold others; an empty one if there is none, or a list of them."""
        return self._test_data if isinstance(self._test_data, Mapping) else {}

    @cached_property
    def test_data_sets(self) -> list[Mapping[str, Any]]:
        """The configs of the test data sets, one or more.

        Raises
        ------
        ValueError
            If there are none.
        """
        data_sets = list(_flattened(self._test_data))
        if not data_sets:
            raise ValueError("evaluate: the config has no test data set: neither data.test nor test_dataloader.dataset")
        return data_sets

    @property
    def test_data_wrappers(self) -> list[str]:
        """The types of data sets that hold the test data sets, such as ``RepeatDataset``."""
        return list(_wrappers(self._test_data))

    def classes(self, detector: Sequence[str] = ()) -> tuple[str, ...] | None:
        """Return the class names of the first test data set, by default a detector's; None if they are unknown.

        Raises
        ------
        ValueError
            If there is no test data set, or its classes are not the detector's.
        """
        return classes_of(self.test_data_sets[0], tuple(detector))

    @property
    def class_counts(self) -> set[int]:
        """Every ``num_classes`` of the model, at any depth."""
        return set(_numbers(self.model if self.has_model else None, "num_classes"))

    @property
    def name_counts(self) -> set[int]:
        """How many class names the model may have; empty of a panoptic model, whose stuff may have names, too."""
        return set() if any(_numbers(self._config.get("model"), "num_stuff_classes")) else self.class_counts

    @property
    def fitting_classes(self) -> tuple[str, ...]:
        """The class names of the first test data set if the model has as many classes, otherwise none."""
        try:
            names = self.classes() or ()
        except (OSError, ValueError):
            return ()
        return names if self.class_counts == {len(names)} else ()

    @property
    def prompt(self) -> Prompt:
        """The classes of the test data set, for which a detector with a language model looks.

        Raises
        ------
        ValueError
            If there is not exactly one data set, or its classes are neither in the config nor known by its type.
        """
        data_sets = list(_flattened(self._test_data))
        if len(data_sets) != 1:
            raise ValueError(
                f"detect: texts must be set (--texts): the config has {len(data_sets)} test data sets, not one whose "
                "classes could be looked for"
            )
        kind, info = plain_type(data_sets[0].get("type")), data_sets[0].get("metainfo") or {}
        classes = info.get("classes") or info.get("CLASSES") or CLASSES_OF_TYPES.get(kind)
        if classes is None:
            raise ValueError(
                f"detect: texts must be set (--texts): the config's test data set, a {kind}, names no classes"
            )
        names = (classes,) if isinstance(classes, str) else classes
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"detect: the classes of the config's test data set must be names, got {names!r}")
        return Prompt.of_data_set(names, data_sets[0].get("caption_prompt"))

    @property
    def _test_data(self) -> Any:
        """The test data sets, however they are nested."""
        data, loader = self._config.get("data") or {}, self._config.get("test_dataloader") or {}
        return data.get("test") or loader.get("dataset")

    @property
    def data_root(self) -> Any:
        """The folder that configs join the paths of their data sets with."""
        return self._config.get("data_root")

    @property
    def batch_size(self) -> int:
        """How many images of the test data set run together, 1 by default, and if each has proportions of its own.

        Raises ValueError if a size is not a positive integer.
        """
        if self.batch_shapes is not None:
            return 1
        data = self._config.get("data") or {}
        for loaders in (self._config.get("test_dataloader"), data.get("test_dataloader"), data.get("test")):
            sizes = [
                loader[name]
                for loader in (loaders if isinstance(loaders, (list, tuple)) else [loaders])
                if isinstance(loader, Mapping)
                for name in ("batch_size", "samples_per_gpu")
                if name in loader
            ]
            for size in sizes:
                if type(size) is not int or size < 1:
                    raise ValueError(f"evaluate: the config's batch size must be a positive integer, got {size!r}")
            if sizes:
                largest: int = max(sizes)
                return largest
        return 1

    @property
    def evaluators(self) -> list[Mapping[str, Any]]:
        """The configs of the metrics."""
        evaluators = self._config.get("test_evaluator") or self._config.get("evaluation") or {}
        evaluators = list(evaluators) if isinstance(evaluators, (list, tuple)) else [evaluators]
        if len(evaluators) == 1 and plain_type(evaluators[0].get("type")) == "MultiDatasetsEvaluator":
            return list(evaluators[0].get("metrics") or ())
        return evaluators


def _flattened(data: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the data sets in lists and in data sets that wrap others or have several annotation files."""
    if isinstance(data, (list, tuple)):
        for item in data:
            yield from _flattened(item)
    elif isinstance(data, Mapping):
        if data.get("separate_eval") is False:
            raise ValueError("evaluate: separate_eval=False is not supported; each data set is measured by itself")
        if "ann_file" not in data and ("dataset" in data or "datasets" in data):
            yield from _flattened(data.get("dataset") or data["datasets"])
        elif isinstance(data.get("ann_file"), (list, tuple)):
            yield from _separated(data)
        else:
            yield data


def _wrappers(data: Any) -> Iterator[str]:
    """Yield the types of data sets that wrap another one, the outermost first."""
    if isinstance(data, (list, tuple)):
        for item in data:
            yield from _wrappers(item)
    elif isinstance(data, Mapping) and (held := data.get("dataset") or data.get("datasets")):
        yield plain_type(data.get("type"))
        yield from _wrappers(held)


def _separated(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a data set for each annotation file; each has its own images if the entry has a list of them too."""
    files, images = entry["ann_file"], entry.get("img_prefix")
    for number, file in enumerate(files):
        prefix = {"img_prefix": images[number]} if isinstance(images, (list, tuple)) else {}
        yield {**entry, "ann_file": file, **prefix}


def _has_step(pipeline: Any, kinds: tuple[str, ...]) -> bool:
    """Return whether a pipeline has a step of one of these types."""
    return isinstance(pipeline, (list, tuple)) and any(
        isinstance(step, dict) and plain_type(step.get("type")) in kinds for step in pipeline
    )


def _numbers(config: Any, name: str) -> Iterator[int]:
    """Yield every integer that is an entry of this name, at any depth of a config."""
    if isinstance(config, dict):
        if isinstance(config.get(name), int):
            yield config[name]
        config = list(config.values())
    if isinstance(config, (list, tuple)):
        for value in config:
            yield from _numbers(value, name)
