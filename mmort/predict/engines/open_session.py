"""Opening a file in ONNX Runtime; other kinds of files, and models that it cannot run, are errors that say why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import mmort.ort
from mmort._files.inputs import is_checkpoint, refuse_address


def require_model(path: str) -> None:
    """Refuse an address, a file that does not exist, a folder, an image, a checkpoint and a config."""
    refuse_address("model", path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"model file does not exist: {path}")
    required = "model must be an ONNX file, before images and data sets, got"
    if os.path.isdir(path):
        raise IsADirectoryError(f"{required} the folder {path}")
    if path.lower().endswith((".jpg", ".jpeg", ".png")):
        raise ValueError(f"{required} the image {path}")
    if is_checkpoint(path):
        raise ValueError(
            f"model must be an ONNX file, got the checkpoint {path}: mmort export makes one of it, "
            "mmort test --backend torch runs it"
        )
    if path.endswith(".py"):
        raise ValueError(
            f"model must be an ONNX file, got the config {path}: mmort export makes one of it and its checkpoint"
        )


def open_session(path: str, providers: Sequence[Any], threads: int | None, part: bytes | None = None) -> Any:
    """Create a session with exactly these providers, of a file or of a part of it."""
    require_model(path)
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ImportError("running a model needs ONNX Runtime: pip install 'mmort[predict]'") from None
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    missing = set(names) - set(onnxruntime.get_available_providers())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # old exports list each weight as an input, which gives a warning for each
    options.intra_op_num_threads = threads or 0
    if not missing:
        try:
            session = mmort.ort.session(part or path, sess_options=options, providers=list(providers))
        except (OSError, ValueError):
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no common class
            raise ValueError(f"{path}: ONNX Runtime cannot load this file: {error}") from error
        missing = set(names) - set(session.get_providers())
    if missing:  # ONNX Runtime would run on the CPU instead
        available = ", ".join(onnxruntime.get_available_providers())
        raise ValueError(f"provider {missing.pop()} is not available in this ONNX Runtime, which has: {available}")
    return session
