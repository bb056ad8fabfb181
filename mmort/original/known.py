"""Stands for the information on images that comes with a batch: what a model reads of it is known, or stops the export.

Whatever a model reads of ``data_samples`` becomes a constant of the file, in torch's program as in ONNX, so that no
comparison would show that it is wrong for other images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn


class UnknownReadError(ValueError):
    """A model reads what differs from image to image."""


def _refuse(thing: str) -> NoReturn:
    raise UnknownReadError(
        f"export: the original reads {thing}, which differs from image to image and would become a constant of the file"
    )


class KnownMeta(dict[str, Any]):
    """The meta information of an image, of which a few entries are known.

    Examples
    --------
    >>> from mmort.original.known import KnownMeta
    >>> meta = KnownMeta(flip_indices=[1, 0])
    >>> meta["flip_indices"], "flip_indices" in meta
    ([1, 0], True)
    >>> meta.get("valid_ratio", 1)
    Traceback (most recent call last):
    ...
    mmort.original.known.UnknownReadError: export: the original reads the meta information 'valid_ratio' of an image, \
which differs from image to image and would become a constant of the file
    """

    def _require(self, name: object) -> None:
        if not super().__contains__(name):
            _refuse(f"the meta information {name!r} of an image")

    def __getitem__(self, name: str) -> Any:
        self._require(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._require(name)
        return True

    def get(self, name: str, default: Any = None) -> Any:
        """Return a known entry."""
        return self[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._require(name)
        super().__setitem__(name, value)

    def _refuse_all(self, *_: Any) -> NoReturn:
        _refuse("all meta information of an image")

    __iter__ = keys = values = items = copy = __copy__ = __deepcopy__ = __or__ = __len__ = _refuse_all


class KnownMetas(list[KnownMeta]):
    """The meta information of a batch, which is the same for all of its images; how many there are is not known."""

    def __init__(self, meta: KnownMeta) -> None:
        super().__init__([meta])

    def __len__(self) -> int:  # noqa: PLE0303 - it never returns
        _refuse("the number of images in a batch")

    def __iter__(self) -> Iterator[KnownMeta]:
        _refuse("the meta information of each image in a batch")

    def __bool__(self) -> bool:
        return True


class UnknownSamples:
    """The data samples of a batch, or one of these, of which nothing is known."""

    def _refuse_all(self, *_: Any) -> NoReturn:
        _refuse("data_samples, the annotations and meta information of a batch")

    __getitem__ = __len__ = __bool__ = _refuse_all

    def __iter__(self) -> Iterator[UnknownSample]:
        """Yield a sample, so that the message names what is read of it; there is no second one."""
        yield UnknownSample()
        self._refuse_all()

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(f"{name} of data_samples")


class KnownSamples(UnknownSamples):
    """The data samples of a batch, whose meta information is the same for all of its images."""

    def __init__(self, meta: KnownMeta) -> None:
        self._sample = _KnownSample(meta)

    def __getitem__(self, *_: Any) -> Any:
        return self._sample


class _KnownSample(UnknownSamples):
    """A data sample, of which the meta information is known."""

    def __init__(self, meta: KnownMeta) -> None:
        self.metainfo = meta


class UnknownSample:
    """The data sample of an image, of which nothing is known."""

    def get(self, name: str, default: Any = None) -> NoReturn:
        """Refuse an entry."""
        _refuse(f"{name!r} of the data sample of an image")

    def __getattr__(self, name: str) -> NoReturn:
        _refuse(f"{name!r} of the data sample of an image")
