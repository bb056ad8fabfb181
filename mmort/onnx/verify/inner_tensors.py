"""Tensors inside of a file's graph, which a copy of the file has as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from mmort.onnx.graph import files
from mmort.onnx.verify.sessions import feeds, open_session


@contextmanager
def written_beside(draft: Path, model: onnx.ModelProto, prefix: str) -> Iterator[Path]:
    """Write a model beside a draft, and remove it at the end of the block."""
    path = draft.with_name(f"{prefix}-{draft.name}")
    try:
        path.write_bytes(model.SerializeToString())
        yield path
    finally:
        path.unlink(missing_ok=True)


def run_tensors(draft: Path, names: Sequence[str], args: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return tensors that a file computes, by name."""
    names = [name for name in dict.fromkeys(names) if name]
    model = files.load(draft)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    with written_beside(draft, model, "tensors") as path:
        session = open_session(path)
        return dict(zip(names, session.run(names, feeds(session, args)), strict=True))
