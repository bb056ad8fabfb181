"""The numpy API of a library of kernels: `call` runs any of them on arrays, by the names in its row.

The kernels contain no Python; this module contains no mathematics.
"""
from cpython.dict cimport PyDict_GetItem
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from mmk cimport *
from ndarrays cimport *
from operators cimport *

import os
from sys import intern

import numpy

cdef extern from *:
    """size_t mmort_describe(char *data, size_t size);  /* describe.c */"""
    size_t mmort_describe(char *data, size_t size)

cdef extern from "pool.h" nogil:
    int mmk_is_pool_thread() noexcept
    void mmk_pool_run(mmk_call *call, mmk_chunk run_chunk, void *loop, size_t chunks) noexcept

cdef extern from *:
    """
    static int raise_pending(void) { return PyErr_Occurred() ? -1 : 0; }

    /* Makes a Python function of one in C, which gets keyword arguments without a dictionary. */
    static PyObject *make_function(const char *name, const char *doc, PyObject *module_name,
                                   PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *)) {
        static PyMethodDef definition;
        PyMethodDef method = {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, doc};
        definition = method;
        return PyCFunction_NewEx(&definition, NULL, module_name);
    }
    """
    int PyErr_CheckSignals() noexcept  # leaves the handler's exception pending, for raise_pending
    int raise_pending() except -1
    object make_function(const char *name, const char *doc, object module_name,
                         object (*function)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *))

import_array()

include "arguments.pxi"

_TYPES = {"float32": MMK_FLOAT32, "float64": MMK_FLOAT64, "bool": MMK_BOOL,
          "int8": MMK_INT8, "int16": MMK_INT16, "int32": MMK_INT32, "int64": MMK_INT64,
          "uint8": MMK_UINT8, "uint16": MMK_UINT16, "uint32": MMK_UINT32, "uint64": MMK_UINT64}
_DTYPES = {number: numpy.dtype(name) for name, number in _TYPES.items()}

cdef int[NPY_DOUBLE + 1] _type_of  # by numpy's number of a type, the last of which is that of float64
cdef int[MMK_UINT64 + 1] _number_of  # numpy's number, by MMK_...
for _char in "fd?bhilqBHILQ":  # C has two names for an integer of 32 or 64 bits, and numpy keeps them apart
    _type_of[<int>numpy.dtype(_char).num] = _TYPES[numpy.dtype(_char).name]
for _number in _DTYPES:
    _number_of[<int>_number] = _DTYPES[_number].num


cdef enum:
    MAX_ARGUMENTS = MMK_MAX_INPUTS + MMK_MAX_ATTRIBUTES
    MIN_CHUNK = 6000  # nanoseconds; a helper that looks for work begins after less than one
    CHUNKS_PER_THREAD = 4  # so that one delayed thread does not delay the call
    MAX_THREADS = 1 << 16

cdef enum Kind:
    TENSOR
    INTEGER
    NUMBER
    WORD
    FLAG
    PAIR


cdef class _Argument:
    """An argument of a kernel: its kind, and the index of the input or attribute that it sets."""
    cdef str name
    cdef Kind kind
    cdef int slot
    cdef bint required
    cdef mmk_attribute initial  # the default, for both numbers of a PAIR
    cdef tuple words
    cdef int type  # of a TENSOR: MMK_..., from the row
    cdef int64_t columns  # of a TENSOR of rows, which an empty list may be; else 0
    cdef bint channels_last  # of a TENSOR: whether it may be so in memory


cdef class _Kernel:
    """A kernel and its row, converted once for all calls."""
    cdef str name
    cdef const OperatorRow *row
    cdef const mmk_operator *functions
    cdef Dtypes dtypes
    cdef list arguments
    cdef dict names  # {name: index} of the arguments
    cdef tuple last_names  # the names in the last call, and the indices of their arguments
    cdef int[MAX_ARGUMENTS] indices

    cdef int match(self, str function, tuple names) except -1:
        """Find the arguments of a call by their names, which are the same object in each call of a line of code."""
        cdef PyObject *index
        cdef int i = 0
        self.last_names = None
        for name in names:
            index = PyDict_GetItem(self.names, name)
            if index == NULL:
                raise TypeError(f"{function}: there is no argument {name}, only {', '.join(self.names)}")
            self.indices[i] = <object>index
            i += 1
        self.last_names = names
        return 0


cdef object _text(const char *text, size_t length):
    return text[:length].decode()


cdef str _name(const char *text):
    """Return a name as the constants in a caller's code are: dictionaries then need not compare characters."""
    return intern(text.decode())


cdef _Argument _attribute_argument(const Attribute *attribute, int slot):
    cdef _Argument argument = _Argument()
    cdef int w = 0
    words = []
    while attribute.words[w] != NULL:
        words.append(_name(attribute.words[w]))
        w += 1
    argument.name = _name(attribute.name if attribute.argument == NULL else attribute.argument)
    argument.slot, argument.required = slot, attribute.required
    argument.initial = attribute.initial
    argument.words = tuple(words)
    argument.kind = (WORD if words else FLAG if attribute.type == ATTRIBUTE_FLAG
                     else PAIR if attribute.type == ATTRIBUTE_PAIR
                     else NUMBER if attribute.type == ATTRIBUTE_FLOAT else INTEGER)
    return argument


cdef _Kernel _prepared(const OperatorRow *row):
    cdef _Kernel kernel = _Kernel()
    cdef _Argument argument, previous = None
    cdef const Formal *formal = row.inputs
    cdef const Attribute *attribute = row.attributes
    cdef int slot = 0
    kernel.name, kernel.dtypes, kernel.arguments = _name(row.kernel), row.dtypes, []
    kernel.row, kernel.functions = row, mmk_find_kernel(row.kernel)
    while formal.name != NULL:
        argument = _Argument()
        argument.name, argument.kind, argument.slot = _name(formal.name), TENSOR, slot
        argument.required, argument.type, argument.words = not formal.optional, formal.type, ()
        argument.channels_last = formal.channels_last
        dimensions = parse_shape(formal.shape.decode())
        if len(dimensions) == 2 and isinstance(dimensions[1], int):
            argument.columns = dimensions[1]
        kernel.arguments.append(argument)
        formal += 1
        slot += 1
    slot = 0
    while attribute.name != NULL:
        argument = _attribute_argument(attribute, slot)
        slot += 2 if argument.kind == PAIR else 1
        if previous is not None and previous.name == argument.name:
            previous.kind = PAIR  # two attributes of one argument
        else:
            kernel.arguments.append(argument)
        previous = argument
        attribute += 1
    kernel.names = {(<_Argument>each).name: index for index, each in enumerate(kernel.arguments)}
    return kernel


def parse_shape(str shape) -> tuple:
    """Return the dimensions of a shape in text: sizes, names, (factors, divisors), None for "?", and ``...``."""
    cdef bytes text = shape.encode()
    cdef const char *cursor = text
    cdef mmk_shape_token token, factor
    cdef size_t position
    dimensions = []
    while mmk_next_dimension(&cursor, &token):
        if token.kind == SHAPE_PRODUCT:
            product, position = ([], []), 0
            while mmk_next_factor(&token, &position, &factor):
                product[factor.divides].append(_factor(&factor))
            dimensions.append((tuple(product[0]), tuple(product[1])))
        elif token.kind == SHAPE_UNKNOWN:
            dimensions.append(None)
        else:
            dimensions.append(... if token.kind == SHAPE_REST else _factor(&token))
    return tuple(dimensions)


cdef object _factor(const mmk_shape_token *token):
    return token.size if token.kind == SHAPE_SIZE else _text(token.text, token.length)


cdef dict _KERNELS = {}
cdef const OperatorRow *_row = operator_rows
while _row.kernel != NULL:
    if mmk_row_error(_row) != NULL:
        raise ImportError(
            f"{__name__}: the row of {_row.kernel.decode()} in operators.c {mmk_row_error(_row).decode()}")
    _KERNELS[_name(_row.kernel)] = _prepared(_row)
    _row += 1


def operators() -> tuple[str, ...]:
    """Return the names of all kernels."""
    cdef int i = 0
    names = []
    while mmk_operators[i].name != NULL:
        names.append(mmk_operators[i].name.decode())
        i += 1
    return tuple(names)


def simd_level() -> str:
    """Return the best instruction set that kernels use: "baseline", "avx2" or "avx512"."""
    return mmk_simd_level().decode()


def limit_simd(level: int) -> None:
    """Keep kernels with versions of their own from using more than level 0, 1 or 2, for tests; not thread-safe."""
    mmk_limit_simd(min(max(level, 0), MMK_SIMD_LEVELS - 1))


def describe() -> str:
    """Return the rows as JSON, the same text as the ONNX Runtime library's."""
    cdef size_t size = mmort_describe(NULL, 0)
    text = bytearray(size + 1)
    mmort_describe(text, size + 1)
    return text[:size].decode()


cdef int32_t _num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_threads() -> int:
    """Return how many threads a call may use: by default, the number of processors this process may use."""
    return _num_threads


def set_num_threads(num_threads) -> None:
    """Set how many threads a call may use, for the whole process: at least 1, and less than 2**31."""
    global _num_threads
    count = as_integer("set_num_threads", "num_threads", num_threads)
    if count < 1:
        raise ValueError(f"set_num_threads: num_threads must be at least 1, got {count}")
    if count >= 2**31:
        raise ValueError(f"set_num_threads: num_threads must be less than 2**31, got {count}")
    _num_threads = count


cdef int _is_interrupted() noexcept nogil:
    """Run the handlers of signals, in the main thread only; return whether one of them raised, -1 if not known."""
    if mmk_is_pool_thread():
        return -1
    with gil:
        return PyErr_CheckSignals() != 0


cdef struct Job:  # a call in progress
    mmk_call c
    PyObject *values[MAX_ARGUMENTS]  # of the arguments; NULL: not given
    int32_t threads
    void *memory
    void *copies  # of inputs


cdef bint _is_channels_last(PyArrayObject *array) noexcept:
    """Return whether [N, C, H, W], of less than 2**30 numbers, are [N, H, W, C] in dense memory, and not both."""
    cdef npy_intp step = PyArray_ITEMSIZE(array)
    cdef int axis
    if PyArray_NDIM(array) != 4 or PyArray_ISCARRAY_RO(array) or PyArray_SIZE(array) >= 1 << 30:
        return False
    for axis in (1, 3, 2, 0):
        if PyArray_DIM(array, axis) != 1 and PyArray_STRIDE(array, axis) != step:
            return False
        step *= PyArray_DIM(array, axis)
    return True


cdef int _set_input(mmk_call *c, _Argument argument, object array) except -1:
    """Point an input at an array; return 0 if the array must be converted first."""
    cdef mmk_tensor *tensor = &c.inputs[argument.slot]
    cdef PyArrayObject *view = <PyArrayObject *>array
    cdef int d, number
    if not PyArray_CheckExact(array):
        return 0
    if PyArray_NDIM(view) > MMK_MAX_RANK:
        raise ValueError(
            f"{c.name.decode()}: arrays may have up to {MMK_MAX_RANK} dimensions, got {PyArray_NDIM(view)}")
    number = PyArray_TYPE(view)
    tensor.channels_last = argument.channels_last and _is_channels_last(view)
    if not (0 <= number <= NPY_DOUBLE
            and (PyArray_ISCARRAY_RO(view) or (tensor.channels_last and PyArray_ISBEHAVED_RO(view)))):
        return 0
    tensor.type = _type_of[number]
    tensor.rank = PyArray_NDIM(view)
    tensor.data = PyArray_DATA(view)
    tensor.size = PyArray_SIZE(view)
    for d in range(tensor.rank):
        tensor.shape[d] = PyArray_DIM(view, d)
    return 1


cdef bint _set_inputs(Job *job, _Kernel kernel, str function) except -1:
    """Point all inputs at the arrays as they are; return False if one of them must be converted first."""
    cdef _Argument argument
    cdef PyObject *value
    cdef int type, floating = MMK_ABSENT
    for argument in kernel.arguments:
        if argument.kind != TENSOR:
            break
        value = job.values[argument.slot]
        if value == NULL and argument.required:
            _missing(function, argument.name)
        if value == NULL or (<object>value is None and not argument.required):
            continue
        if not _set_input(&job.c, argument, <object>value):
            return False
        type = job.c.inputs[argument.slot].type
        if argument.type != MMK_FLOAT32 or kernel.dtypes == DTYPES_FLOAT32:
            if type != argument.type:
                return False
        elif kernel.dtypes == DTYPES_FLOATING:
            if (type != MMK_FLOAT32 and type != MMK_FLOAT64) or (floating != MMK_ABSENT and type != floating):
                return False
            floating = type
    return True


cdef tuple _convert_inputs(Job *job, _Kernel kernel, str function):
    """Convert all inputs to arrays that the kernel takes, and point the inputs at them.

    Returns the arrays, which must stay alive, and the dtype to convert float32 results to; None: they stay float32.
    """
    cdef _Argument argument
    cast, floats, arrays, moved = None, {}, {}, []
    for argument in kernel.arguments:
        if argument.kind != TENSOR:
            break
        value = <object>job.values[argument.slot] if job.values[argument.slot] != NULL else None
        if value is None and not argument.required:
            continue
        if argument.columns:
            value = as_rows(value, argument.columns)
        elif argument.channels_last and PyArray_CheckExact(value) and _is_channels_last(<PyArrayObject *>value):
            value = value.transpose(0, 2, 3, 1)
            moved.append(argument.name)
        if argument.type == MMK_INT64:
            arrays[argument.name] = as_integers(function, argument.name, value)
        elif argument.type != MMK_FLOAT32 or kernel.dtypes == DTYPES_FLOAT32:
            arrays[argument.name] = _exactly(function, argument.name, value, _DTYPES[argument.type])
        elif kernel.dtypes == DTYPES_REAL:
            arrays[argument.name], cast = as_real(function, argument.name, value)
        else:
            floats[argument.name] = value
    if floats:
        converted, cast = as_floating(function, **floats)
        arrays.update(zip(floats, converted))
    for name in moved:
        arrays[name] = arrays[name].transpose(0, 3, 1, 2)
    for argument in kernel.arguments:
        if argument.name in arrays:
            _set_input(&job.c, argument, arrays[argument.name])
    return arrays, cast if cast == _float16 else None  # every other floating dtype is computed in itself


cdef bint _is_integer(object value, int64_t *integer) except -1:
    """Return whether a value is an int of 64 bits, and set the integer to it."""
    cdef int overflow = 1
    if type(value) is int:
        integer[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return not overflow


cdef int _set_attribute(mmk_attribute *slot, _Argument argument, str function, object value) except -1:
    cdef int64_t integer = 0
    if argument.kind == NUMBER:
        if type(value) is float:
            slot.f = <double>value
        elif _is_integer(value, &integer):
            slot.f = <double>integer
        else:
            slot.f = as_number(function, argument.name, value)
    elif argument.kind == INTEGER:
        if not _is_integer(value, &slot.i):
            slot.i = as_integer(function, argument.name, value)
    elif argument.kind == FLAG:
        slot.i = value is True if type(value) is bool else _flag(function, argument.name, value)
    elif argument.kind == WORD:
        for word in argument.words:
            if word is value:
                slot.i = integer
                return 0
            integer += 1
        slot.i = as_choice(function, argument.name, value, argument.words)
    elif _is_integer(value, &slot.i):
        slot[1].i = slot.i
    else:
        slot[0].i, slot[1].i = _pair(function, argument.name, value)
    return 0


cdef int _set_attributes(Job *job, _Kernel kernel, str function) except -1:
    """Set all attributes, those that are not given to the row's defaults."""
    cdef _Argument argument
    cdef mmk_attribute *slot
    cdef PyObject *value
    cdef int i = -1
    for argument in kernel.arguments:
        i += 1
        if argument.kind == TENSOR:
            continue
        value = job.values[i]
        slot = &job.c.attributes[argument.slot]
        if value != NULL:
            _set_attribute(slot, argument, function, <object>value)
        elif argument.required:
            _missing(function, argument.name)
        else:
            slot[0] = argument.initial
            if argument.kind == PAIR:
                slot[1] = argument.initial
    return 0


cdef object _new_output(mmk_call *c, int i):
    """Return an array for output i; if the outputs are late, copy its data from the kernel's scratch memory."""
    cdef mmk_tensor *tensor = &c.outputs[i]
    cdef npy_intp[MMK_MAX_RANK] shape
    cdef int d
    for d in range(tensor.rank):
        shape[d] = tensor.shape[d]
    array = PyArray_SimpleNew(tensor.rank, shape, _number_of[tensor.type])
    if not c.late_outputs:
        tensor.data = PyArray_DATA(<PyArrayObject *>array)
    elif tensor.size:  # the data of no elements may have no address, which memcpy must not get
        memcpy(PyArray_DATA(<PyArrayObject *>array), tensor.data, tensor.size * mmk_element_size(tensor.type))
    return array


cdef tuple _new_outputs(mmk_call *c):
    first = _new_output(c, 0)
    if c.outputs[1].type == MMK_ABSENT:
        return (first,)
    second = _new_output(c, 1)
    return (first, second) if c.outputs[2].type == MMK_ABSENT else (first, second, _new_output(c, 2))


cdef tuple _run(Job *job, _Kernel kernel):
    """Check the inputs, and run all phases, on several threads if they are long enough; return the outputs."""
    cdef mmk_call *c = &job.c
    cdef tuple outputs = None
    cdef int outcome
    if mmk_copy_inputs(kernel.row, c, &job.copies):
        raise MemoryError(f"{kernel.name}: out of memory")
    if kernel.functions.prepare(c) or c.stopped:
        raise ValueError(c.message.decode())
    if not c.late_outputs:
        outputs = _new_outputs(c)
    c.scratch = mmk_allocate_scratch(c.scratch_size, &job.memory)
    if c.scratch_size and c.scratch == NULL:
        raise MemoryError(f"{kernel.name}: out of memory")
    job.threads = min(_num_threads, MAX_THREADS)
    c.parallel_for = mmk_pool_run
    c.front_end = &job.threads
    c.max_chunks = 1 if job.threads == 1 else job.threads * CHUNKS_PER_THREAD
    c.min_chunk = MIN_CHUNK
    with nogil:
        outcome = mmk_run(kernel.functions, c)
    raise_pending()
    if outcome == MMK_OUT_OF_MEMORY:
        raise MemoryError(f"{kernel.name}: out of memory")
    if outcome:
        raise ValueError(c.message.decode())
    return _new_outputs(c) if outputs is None else outputs


cdef object _call(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *names):
    cdef Job job
    cdef PyObject *entry
    cdef _Kernel kernel
    cdef str function
    cdef object cast = None
    cdef Py_ssize_t i
    if count != 1 and count != 2:
        raise TypeError(f"call: the positional arguments must be a kernel and at most a function, got {count}")
    entry = PyDict_GetItem(_KERNELS, <object>arguments[0])
    if entry == NULL:
        raise ImportError(
            f"{__name__} has no kernel {<object>arguments[0]}; if it is a new one, build and install the package again")
    kernel = <_Kernel>entry
    function = kernel.name if count == 1 or <object>arguments[1] is None else <str?><object>arguments[1]
    memset(&job, 0, sizeof(job))
    if names != NULL:
        if names != <PyObject *>kernel.last_names:
            kernel.match(function, <tuple>names)
        for i in range(len(<tuple>names)):
            job.values[kernel.indices[i]] = arguments[count + i]
    job.c.name = kernel.functions.name
    job.c.is_interrupted = _is_interrupted
    if not _set_inputs(&job, kernel, function):
        _kept, cast = _convert_inputs(&job, kernel, function)
    _set_attributes(&job, kernel, function)
    try:
        outputs = _run(&job, kernel)
    finally:
        free(job.memory)
        free(job.copies)
    if cast is not None:
        outputs = tuple([array.astype(cast) if array.dtype == _float32 else array for array in outputs])
    return outputs


call = make_function("call", b"""call(kernel, function=None, /, **arguments)\n--\n\n\
Run a kernel and return its outputs.

The names and the defaults of the arguments are the row's.  Messages about them begin with `function`, by default
the kernel's name.
""", __name__, _call)
