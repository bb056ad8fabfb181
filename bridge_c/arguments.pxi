"""Conversion of a caller's arguments to what kernels take, which check shapes and values; part of `numpy_api.pyx`.

The functions are public to the package that the kit is built into, for its functions that compose kernels.
"""
from operator import index as _index

cdef object _float16 = numpy.dtype("float16")
cdef object _float32 = numpy.dtype("float32")
cdef object _float64 = numpy.dtype("float64")
cdef object _int64 = numpy.dtype("int64")


def as_floating(function, /, **arrays):
    """Convert arrays to one floating dtype in C order; also return the dtype of the floating results.

    float16 is computed in float32, integers (and Python numbers) in float64.
    """
    converted = {name: _plain(function, name, array) for name, array in arrays.items()}
    for name, array in converted.items():
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise TypeError(f"{function}: {name} must be float16, float32, float64 or integers, got {array.dtype}")
    result = numpy.result_type(*[array.dtype for array in converted.values()])
    if result.kind != "f":
        result = _float64
    computed = _computed(result)
    return [_dense(array, computed) for array in converted.values()], result


def as_real(function, name, array):
    """Convert an array of any real dtype, bool included, to C order; also return the dtype of the results."""
    converted = _plain(function, name, array)
    if converted.dtype.kind not in "fiub" or converted.dtype.itemsize > 8:
        raise TypeError(
            f"{function}: {name} must be bool, integers, float16, float32 or float64, got {converted.dtype}")
    result = converted.dtype.newbyteorder("=")
    return _dense(converted, _computed(result)), result


def as_integers(function, name, array):
    """Convert an array of integers (or an empty one) to int64 in C order."""
    converted = _plain(function, name, array)
    if converted.dtype.kind not in "iub" and converted.size:
        raise TypeError(f"{function}: {name} must be integers, got {converted.dtype}")
    return _dense(converted, _int64)


cdef object _exactly(function, name, array, dtype):
    """Convert an array of this dtype to C order."""
    converted = _plain(function, name, array)
    if converted.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"{function}: {name} must be {dtype}, got {converted.dtype}")
    return _dense(converted, dtype)


def as_rows(array, columns):
    """Return an empty list as no rows of so many columns, which numpy cannot know; anything else as it is."""
    return numpy.empty((0, columns)) if isinstance(array, (list, tuple)) and not array else array


cdef object _plain(function, name, array):
    """Return an array; a masked one is refused, as its mask would be ignored."""
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(f"{function}: {name} must not be a masked array; fill it, or select what is not masked")
    return numpy.asarray(array)


cdef object _computed(dtype):
    """Return the dtype that results of a dtype are computed in."""
    return _float32 if dtype == _float16 else dtype


cdef object _dense(array, dtype):
    """Convert an array to a dtype, C order and aligned memory; unlike ascontiguousarray, keep scalars."""
    dense = numpy.asarray(array, dtype=dtype, order="C")
    return dense if dense.flags.aligned else dense.copy()


def as_number(function, name, value):
    """Return a real number as float; text and bool are not numbers."""
    if isinstance(value, (str, bytes, bytearray, bool, numpy.bool_)):
        raise TypeError(f"{function}: {name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{function}: {name} must fit in a double, got an integer of more digits") from None
    except (TypeError, ValueError):
        raise TypeError(f"{function}: {name} must be a number, got {value!r}") from None


def as_integer(function, name, value):
    """Return an integer (numpy's included, but no bool) as int."""
    if isinstance(value, (bool, numpy.bool_)):
        raise TypeError(f"{function}: {name} must be an integer, got {value!r}")
    try:
        result = _index(value)
    except TypeError:
        raise TypeError(f"{function}: {name} must be an integer, got {value!r}") from None
    if not -(2**63) <= result < 2**63:
        size = value if result.bit_length() <= 128 else f"an integer of {result.bit_length()} bits"
        raise ValueError(f"{function}: {name} must fit in 64 bits, got {size}")
    return result


cdef bint _flag(function, name, value) except -1:
    """Return a bool, or an integer as ONNX has it, as bool."""
    if isinstance(value, (int, numpy.bool_, numpy.integer)):
        return bool(value)
    raise TypeError(f"{function}: {name} must be True or False, got {value!r}")


def as_choice(function, name, value, choices):
    """Return the index of a word."""
    if not isinstance(value, str) or value not in choices:
        *words, last = [repr(word) for word in choices]
        raise ValueError(f"{function}: {name} must be {', '.join(words)} or {last}, got {value!r}")
    return choices.index(value)


cdef tuple _pair(function, name, value):
    """Return an integer twice, or two integers."""
    if numpy.ndim(value) == 0:
        both = as_integer(function, name, value)
        return both, both
    if len(value) != 2:
        raise ValueError(f"{function}: {name} must be one integer or two, got {value!r}")
    return as_integer(function, name, value[0]), as_integer(function, name, value[1])


cdef int _missing(function, name) except -1:
    """Raise TypeError for a required argument that is not given."""
    raise TypeError(f"{function}: {name} is required, got nothing")
