"""A detector's file in ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from mmort.contract import Interface
from mmort.contract.tasks import TEXT_INPUTS
from mmort.ops.threads import get_num_threads
from mmort.predict.engines.io_binding import BoundSession
from mmort.predict.engines.network import DetectorFile, require_counts
from mmort.predict.engines.open_session import open_session
from mmort.predict.engines.splitting import SplitSession, split_session
from mmort.predict.text_encoder import EncodedNames


class OnnxRuntime(DetectorFile):
    """A detector's ONNX file in ONNX Runtime: of ``mmort export``, of MMDetection's own export tool, or of MMDeploy.

    Parameters
    ----------
    path : path
    providers : sequence, optional
        ONNX Runtime's execution providers, by preference, such as ``CUDAExecutionProvider``.  Default: the CPU.  Each
        is a name, or a pair of a name and a dict of options.
    threads : int, optional
        Threads for the operators.  Default: one for each core.
    io_binding : bool, default False
        Run by ONNX Runtime's IO binding.  On a GPU, inputs of the same shape then use the same memory there.
    parallel : int, default 1
        Batches that run at the same time and share the threads, each with memory of its own.  Two keep the cores busier
        than one.  Each caller is one of the threads.

    Raises
    ------
    OSError
        If there is no such file, or mmort was built without its library.
    ValueError
        If ONNX Runtime cannot load the file, the file is not a detector's, or a provider is not available.
    ImportError
        If onnxruntime is not installed.
    """

    engine = "onnxruntime"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        providers: Sequence[Any] | None = None,
        threads: int | None = None,
        io_binding: bool = False,
        parallel: int = 1,
    ) -> None:
        if isinstance(providers, str):
            raise TypeError(f"providers must be a sequence, such as [{providers!r}], got {providers!r}")
        require_counts(threads=threads, parallel=parallel)
        if parallel > 1 and io_binding:
            raise ValueError(f"io_binding runs one batch at a time, parallel must be 1, got {parallel}")
        workers = threads
        if parallel > 1:  # ONNX Runtime counts one caller among its threads
            workers = max(1, (get_num_threads() if threads is None else threads) + 1 - parallel)
        self._open = partial(open_session, os.fspath(path), providers or ["CPUExecutionProvider"], workers)
        self.session = self._open()
        self._split: SplitSession | None = None
        super().__init__(
            os.fspath(path),
            Interface.of_session(self.session),
            threads=threads,
            parallel=parallel,
            providers=providers,
            io_binding=io_binding,
        )
        self._bound = BoundSession(self.session, self.contract.outputs) if io_binding else None

    def _set_words(self, words: tuple[EncodedNames, ...]) -> None:
        super()._set_words(words)
        if len(words) > 1 and self._split is None and self._bound is None:
            self._split = split_session(self.path, TEXT_INPUTS, self.contract.outputs, self._open)
            if self._split is not None:
                self.session = None  # its weights are in the two sessions

    def _run_words(self, feeds: dict[str, NDArray[Any]]) -> list[list[NDArray[Any]]]:
        if self._split is None:
            return super()._run_words(feeds)
        return self._split.run(feeds, [words.feeds for words in self._words])

    def _run(self, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        if self._bound is not None:
            return self._bound(feeds)
        try:
            outputs: list[NDArray[Any]] = self.session.run(self.contract.outputs, feeds)
        except Exception as error:  # ONNX Runtime's exceptions have no common class, and name neither file nor sizes
            shape = [*feeds[self.contract.image.name].shape]
            text = " ".join(str(error).split())
            raise ValueError(f"{self.path}: ONNX Runtime cannot run it on images of {shape}: {text}") from error
        return outputs
