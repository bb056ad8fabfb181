"""How many threads a call may use; their default is in the kit's ``numpy_api.pyx``, the threads in ``pool.c``."""

from __future__ import annotations

from mmort import _kernels

__all__ = ["get_num_threads", "set_num_threads"]


def get_num_threads() -> int:
    """Return how many threads a call of the numpy API may use.

    Returns
    -------
    int
        The number last set with `set_num_threads`; before that, the number of processors this process may use.

    Examples
    --------
    >>> import mmort
    >>> mmort.get_num_threads() >= 1
    True
    """
    return _kernels.get_num_threads()


def set_num_threads(num_threads: int) -> None:
    """Set how many threads a call of the numpy API may use, for the whole process.

    Calls below about 12 microseconds always run on the calling thread.  Calls from several threads at once share the
    threads.  ONNX Runtime sessions use their own (``SessionOptions.intra_op_num_threads``).

    Parameters
    ----------
    num_threads : int
        At least 1, and less than 2**31.

    Raises
    ------
    TypeError, ValueError
        If `num_threads` is not an integer, or out of range.

    Examples
    --------
    >>> import mmort
    >>> before = mmort.get_num_threads()
    >>> mmort.set_num_threads(1)
    >>> mmort.get_num_threads()
    1
    >>> mmort.set_num_threads(before)
    """
    _kernels.set_num_threads(num_threads)
