"""Spread the images over the workers of a Ray cluster, with the results and the order of `Predictor.predict`.

Each task is a chunk of whole batches, so that an image meets the same images in its batch as without Ray: padding
depends on them.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mmort.predict.engines.network import Network
from mmort.predict.engines.onnxruntime import OnnxRuntime

if TYPE_CHECKING:
    from mmort.detections import Detections
    from mmort.predict.predictor import Predictor

BATCHES_PER_TASK = 16  # a worker reads the next images while the detector runs, but only within a task
CONNECTION_SECONDS = 10  # for the first answer of a cluster
MAX_RETRIES = 3  # of a task whose worker died; an image that ends every worker must not run for ever


class Ray:
    """The workers of a Ray cluster, over which `Predictor.predict` spreads image files.

    The cluster is the one that this process is connected to, the one that the environment variable ``RAY_ADDRESS``
    names, or else one of this machine's cores that ends with the call.  Its nodes must have mmort, and find the
    network's file and the images under the same paths.  Single images and batches run in this process.

    Parameters
    ----------
    network : path or Network
        What each worker loads; a path means ``OnnxRuntime(path, threads=1)``.  Its ``threads`` are the cores that each
        worker occupies.

    Raises
    ------
    ImportError
        If Ray is not installed.
    ValueError
        If the network has no ``threads``.

    Examples
    --------
    >>> from mmort import Predictor
    >>> from mmort.predict import OnnxRuntime, Ray
    >>> predictor = Predictor(Ray(OnnxRuntime("detector.onnx", threads=4)))  # doctest: +SKIP
    >>> detections = list(predictor.predict("photos", batch_size=8))  # doctest: +SKIP
    """

    def __init__(self, network: str | os.PathLike[str] | Network) -> None:
        _import_ray()  # before a network is loaded
        self.network = OnnxRuntime(network, threads=1) if isinstance(network, (str, os.PathLike)) else network
        threads = getattr(self.network, "threads", None)
        if threads is None:
            raise ValueError("Ray: the network must have threads, the cores that each worker occupies, got None")
        self.threads: int = threads

    def outcomes(
        self, predictor: Predictor, images: Iterable[Any], batch_size: int, *, return_exceptions: bool
    ) -> Iterator[Detections | Exception]:
        """Yield the results of `Predictor.predict`; each worker has a copy of the predictor.

        The images of a worker that dies go to another.

        Raises
        ------
        OSError
            If the cluster cannot be reached, or the workers die four times on the same images.
        ValueError
            If a worker needs more threads than a node has.  For an image: as `Predictor.predict`.
        TypeError
            If the images are not paths.
        """
        images = list(images)
        for image in images:
            if not isinstance(image, (str, os.PathLike)):
                raise TypeError(f"Predictor: on Ray, images must be paths of files, got {type(image).__name__}")
        paths = [os.fspath(Path(image).absolute()) for image in images]
        return _outcomes(_import_ray(), predictor, paths, batch_size, self.threads, return_exceptions)


def _import_ray() -> Any:
    """Import Ray with Ray Data, which takes seconds."""
    try:
        import ray.data
    except ModuleNotFoundError:
        raise ImportError("engine ray needs Ray: pip install 'mmort[ray]'") from None
    return ray


def _outcomes(
    ray: Any, predictor: Predictor, paths: Sequence[str], batch_size: int, threads: int, return_exceptions: bool
) -> Iterator[Detections | Exception]:
    """Yield each image's detections, or its exception."""
    step = batch_size * BATCHES_PER_TASK
    tasks = [{"paths": paths[start : start + step]} for start in range(0, len(paths), step)]
    if not tasks:
        return
    with _connected(ray, threads):
        dataset = _dataset(ray, tasks, _Worker, (predictor, batch_size), threads)
        try:
            for row in dataset.iter_rows():
                for outcome in pickle.loads(row["outcomes"]):  # of our own workers
                    if isinstance(outcome, Exception) and not return_exceptions:
                        raise outcome
                    yield outcome
        except ray.exceptions.RayError as error:
            raise OSError(f"ray: {_cause(error)}") from error


def _dataset(ray: Any, tasks: Sequence[dict[str, Any]], worker: type, arguments: tuple[Any, ...], threads: int) -> Any:
    """Return the workers' answers to the tasks, as a data set that is computed when it is read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the limit of retries, which has no successor yet
        return ray.data.from_items(tasks, override_num_blocks=len(tasks)).map_batches(
            worker,
            batch_size=1,
            fn_constructor_args=arguments,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=None),
            num_cpus=threads,
            max_restarts=-1,
            max_task_retries=MAX_RETRIES,
        )


def _cause(error: Exception) -> str:
    """Return the last line of Ray's error, which has the reason; what stands before are tracebacks and identifiers."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


def _require_cluster() -> None:
    """Raise OSError if nothing answers at the cluster's address, where Ray would try, and print, for minutes."""
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():  # unlike "auto" and "local"
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECTION_SECONDS).close()
        except OSError as error:
            raise OSError(
                f"ray: nothing answers at {address}, which RAY_ADDRESS names: {error.strerror or error}"
            ) from None


@contextmanager
def _connected(ray: Any, threads: int) -> Iterator[None]:
    """Connect to the cluster, or start one that ends with the block."""
    started = not ray.is_initialized()
    if started:
        _require_cluster()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
        try:
            ray.init(logging_level=logging.WARNING, **_local_settings())
        except ConnectionError as error:
            advice = "a cluster with a token needs RAY_AUTH_MODE=token and ~/.ray/auth_token here, too"
            raise OSError(f"ray: {error}; {advice}") from error
    try:
        cores = max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
        if cores < threads:
            raise ValueError(f"ray: threads must be at most {cores:.0f}, the cores of the largest node, got {threads}")
        with _ordered_and_quiet(ray.data.DataContext.get_current()):
            yield
    finally:
        if started:
            ray.shutdown()


@contextmanager
def _ordered_and_quiet(context: Any) -> Iterator[None]:
    """Make Ray Data keep the order of the tasks and print nothing; the caller's settings return with the end."""
    options = context.execution_options
    before = options.preserve_order, context.enable_progress_bars
    levels = {"ray.data": logging.WARNING, "ray.data._internal.progress": logging.ERROR}  # it warns that bars are off
    levels_before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    options.preserve_order, context.enable_progress_bars = True, False
    try:
        yield
    finally:
        for name, level in levels_before.items():
            logging.getLogger(name).setLevel(level)
        options.preserve_order, context.enable_progress_bars = before


def _local_settings() -> dict[str, Any]:
    """Return the settings of a cluster that `ray.init` starts; a cluster that exists has its own."""
    return {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}


class _Worker:
    """The predictor in each of Ray's workers."""

    def __init__(self, predictor: Predictor, batch_size: int) -> None:
        self.predictor, self.batch_size = predictor, batch_size

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """Return the pickled list of the outcomes of a task's images."""
        (paths,) = task["paths"]
        results = self.predictor.predict(list(map(str, paths)), self.batch_size, return_exceptions=True)
        outcomes = list(map(_picklable, results))
        return {"outcomes": np.array([pickle.dumps(outcomes)], object)}


def _picklable(outcome: Detections | Exception) -> Detections | Exception:
    """Return an outcome that the driver can unpickle: libraries' exceptions become a ValueError."""
    if isinstance(outcome, Exception) and type(outcome).__module__ != "builtins":
        return ValueError(str(outcome))
    return outcome
