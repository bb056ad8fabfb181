"""The numpy API of a library of kernels: `call` runs any of them on arrays, by the names in its row.

The kernels contain no Python; this module contains no mathematics.
"""
from cpython.buffer cimport (PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release,
                             PyObject_GetBuffer)
from cpython.dict cimport PyDict_GetItem
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from mmk cimport *
from operators cimport *

from sys import intern

import numpy

from mmort import _arrays, _threads

cdef extern from *:
    """size_t mmort_describe(char *data, size_t size);  /* describe.c */"""
    size_t mmort_describe(char *data, size_t size)

cdef extern from "pool.h" nogil:
    int mmk_is_pool_thread() noexcept
    void mmk_pool_run(mmk_call *call, mmk_chunk run_chunk, void *loop, size_t chunks) noexcept

cdef extern from *:
    """
    static int raise_pending(void) { return PyErr_Occurred() ? -1 : 0; }
    """
    int PyErr_CheckSignals() noexcept  # leaves the handler's exception pending, for raise_pending
    int raise_pending() except -1

# Looked up once: with the stable ABI, Cython does not cache the names of other modules.
cdef object _empty = numpy.empty
cdef object _ndarray = numpy.ndarray
cdef object _float16 = numpy.dtype("float16")
cdef object _float32 = numpy.dtype("float32")

_TYPES = {"f": MMK_FLOAT32, "d": MMK_FLOAT64, "?": MMK_BOOL}
_TYPES.update((numpy.dtype(name).char, number) for name, number in (
    ("int8", MMK_INT8), ("int16", MMK_INT16), ("int32", MMK_INT32), ("int64", MMK_INT64),
    ("uint8", MMK_UINT8), ("uint16", MMK_UINT16), ("uint32", MMK_UINT32), ("uint64", MMK_UINT64)))
_DTYPES = {number: numpy.dtype(char) for char, number in _TYPES.items()}
if numpy.dtype("longlong").itemsize == 8:  # C has two names for 64 bits, and numpy keeps them apart
    _TYPES.update({"l" if numpy.dtype("int64").char == "q" else "q": MMK_INT64,
                   "L" if numpy.dtype("int64").char == "q" else "Q": MMK_UINT64})

cdef int[128] _type_of  # by a dtype's character; MMK_ABSENT: not supported
for _char, _number in _TYPES.items():
    _type_of[<int>ord(_char)] = _number


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
    cdef dict words  # {word: index}
    cdef int type  # of a TENSOR: MMK_..., from the row
    cdef int64_t columns  # of a TENSOR of rows, which an empty list may be; else 0


cdef class _Kernel:
    """A kernel and its row, converted once for all calls."""
    cdef str name
    cdef const OperatorRow *row
    cdef const mmk_operator *functions
    cdef Dtypes dtypes
    cdef list arguments
    cdef dict names  # of the arguments, in order


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
    argument.words = {word: index for index, word in enumerate(words)}
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
        argument.required, argument.type, argument.words = not formal.optional, formal.type, {}
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
    kernel.names = dict.fromkeys([(<_Argument>each).name for each in kernel.arguments])
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


cdef int _is_interrupted() noexcept nogil:
    """Run the handlers of signals, in the main thread only; return whether one of them raised, -1 if not known."""
    if mmk_is_pool_thread():
        return -1
    with gil:
        return PyErr_CheckSignals() != 0


cdef enum:
    CHUNKS_PER_THREAD = 4  # so that one delayed thread does not delay the call
    MAX_THREADS = 1 << 16


cdef class _Job:
    """A call in progress: the C structure, and everything that must stay alive with it."""
    cdef mmk_call c
    cdef _Kernel kernel
    cdef str function  # the name in messages about arguments
    cdef object cast  # the dtype to convert float32 results to; None: they stay float32
    cdef Py_buffer[9] buffers  # of MMK_MAX_INPUTS inputs and MMK_MAX_OUTPUTS outputs
    cdef int buffer_count
    cdef int32_t threads
    cdef void *memory
    cdef void *copies  # of inputs

    def __dealloc__(self):
        self.release()
        free(self.memory)
        free(self.copies)

    cdef void release(self):
        cdef int i
        for i in range(self.buffer_count):
            PyBuffer_Release(&self.buffers[i])
        self.buffer_count = 0

    cdef Py_buffer *hold(self, object array, int flags) except NULL:
        cdef Py_buffer *view = &self.buffers[self.buffer_count]
        PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_FORMAT | flags)
        self.buffer_count += 1
        return view

    cdef int set_input(self, _Argument argument, object array) except -1:
        """Point an input at an array; return 0 if the array must be converted first."""
        cdef mmk_tensor *tensor = &self.c.inputs[argument.slot]
        cdef Py_buffer *view
        cdef int d
        if type(array) is not _ndarray:
            return 0
        try:
            view = self.hold(array, 0)
        except (BufferError, ValueError):  # its dtype has no buffer format, as dates
            return 0
        if view.ndim > MMK_MAX_RANK:
            raise ValueError(
                f"{self.kernel.name}: arrays may have up to {MMK_MAX_RANK} dimensions, got {view.ndim}")
        if view.format[0] < 0 or view.format[1] != 0 or not PyBuffer_IsContiguous(view, b"C"):
            return 0
        tensor.type = _type_of[<int>view.format[0]]
        tensor.rank = view.ndim
        tensor.data = view.buf
        tensor.size = view.len // view.itemsize
        for d in range(view.ndim):
            tensor.shape[d] = view.shape[d]
        return tensor.type != MMK_ABSENT

    cdef bint set_inputs(self, dict values) except -1:
        """Point all inputs at the arrays as they are; return False if one of them must be converted first."""
        cdef _Argument argument
        cdef PyObject *value
        cdef int type, floating = MMK_ABSENT
        for argument in self.kernel.arguments:
            if argument.kind != TENSOR:
                break
            value = PyDict_GetItem(values, argument.name)
            if value == NULL and argument.required:
                _arrays.missing(self.function, argument.name)
            if value == NULL or (<object>value is None and not argument.required):
                continue
            if not self.set_input(argument, <object>value):
                return False
            type = self.c.inputs[argument.slot].type
            if argument.type != MMK_FLOAT32 or self.kernel.dtypes == DTYPES_FLOAT32:
                if type != argument.type:
                    return False
            elif self.kernel.dtypes == DTYPES_FLOATING:
                if (type != MMK_FLOAT32 and type != MMK_FLOAT64) or (floating != MMK_ABSENT and type != floating):
                    return False
                floating = type
        return True

    cdef int convert_inputs(self, dict values) except -1:
        """Convert all inputs to arrays that the kernel takes, and point the inputs at them."""
        cdef _Argument argument
        floats, arrays = {}, {}
        self.release()
        for argument in self.kernel.arguments:
            if argument.kind != TENSOR:
                break
            value = values.get(argument.name)
            if value is None and not argument.required:
                continue
            if argument.columns:
                value = _arrays.rows(value, argument.columns)
            if argument.type == MMK_INT64:
                arrays[argument.name] = _arrays.integers(self.function, argument.name, value)
            elif argument.type != MMK_FLOAT32 or self.kernel.dtypes == DTYPES_FLOAT32:
                arrays[argument.name] = _arrays.exactly(self.function, argument.name, value, _DTYPES[argument.type])
            elif self.kernel.dtypes == DTYPES_REAL:
                arrays[argument.name], self.cast = _arrays.real(self.function, argument.name, value)
            else:
                floats[argument.name] = value
        if floats:
            converted, self.cast = _arrays.floating(self.function, **floats)
            arrays.update(zip(floats, converted))
        for argument in self.kernel.arguments:
            if argument.name in arrays:
                self.set_input(argument, arrays[argument.name])
        if self.cast != _float16:  # every other floating dtype is computed in itself
            self.cast = None
        return 0

    cdef int set_attribute(self, _Argument argument, object value) except -1:
        cdef mmk_attribute *slot = &self.c.attributes[argument.slot]
        cdef PyObject *word
        cdef int overflow = 1
        if argument.kind == NUMBER:
            slot.f = <double>value if type(value) is float else _arrays.number(self.function, argument.name, value)
        elif argument.kind == INTEGER:
            if type(value) is int:
                slot.i = PyLong_AsLongLongAndOverflow(value, &overflow)
            if overflow:
                slot.i = _arrays.integer(self.function, argument.name, value)
        elif argument.kind == FLAG:
            slot.i = value if type(value) is bool else _arrays.flag(self.function, argument.name, value)
        elif argument.kind == WORD:
            word = PyDict_GetItem(argument.words, value) if type(value) is str else NULL
            if word != NULL:
                slot.i = <object>word
            else:
                slot.i = _arrays.choice(self.function, argument.name, value, tuple(argument.words))
        else:
            slot.i, (slot + 1).i = _arrays.pair(self.function, argument.name, value)
        return 0

    cdef int set_attributes(self, dict values) except -1:
        """Set all attributes, those that are not given to the row's defaults."""
        cdef _Argument argument
        cdef PyObject *value
        for argument in self.kernel.arguments:
            if argument.kind == TENSOR:
                continue
            value = PyDict_GetItem(values, argument.name)
            if value != NULL:
                self.set_attribute(argument, <object>value)
            elif argument.required:
                _arrays.missing(self.function, argument.name)
            else:
                self.c.attributes[argument.slot] = argument.initial
                if argument.kind == PAIR:
                    self.c.attributes[argument.slot + 1] = argument.initial
        return 0

    cdef object new_output(self, int i):
        """Return an array for output i; if the outputs are late, copy its data from the kernel's scratch memory."""
        cdef mmk_tensor *tensor = &self.c.outputs[i]
        cdef int d
        array = _empty(tuple([tensor.shape[d] for d in range(tensor.rank)]), _DTYPES[tensor.type])
        cdef Py_buffer *view = self.hold(array, PyBUF_WRITABLE)
        if not self.c.late_outputs:
            tensor.data = view.buf
        elif view.len:  # an empty output may have no address, which memcpy must not get
            memcpy(view.buf, tensor.data, view.len)
        return array

    cdef list new_outputs(self):
        cdef int i
        return [self.new_output(i) for i in range(MMK_MAX_OUTPUTS) if self.c.outputs[i].type != MMK_ABSENT]

    cdef int prepare(self) except -1:
        """Check the inputs and allocate what the phases share."""
        if mmk_copy_inputs(self.kernel.row, &self.c, &self.copies):
            raise MemoryError(f"{self.kernel.name}: out of memory")
        if self.kernel.functions.prepare(&self.c) or self.c.stopped:
            raise ValueError(self.c.message.decode())
        return 0

    cdef int run(self) except -1:
        """Run all phases, on several threads if they are long enough."""
        cdef int outcome
        self.threads = min(_threads.get_num_threads(), MAX_THREADS)
        self.c.parallel_for = mmk_pool_run
        self.c.front_end = &self.threads
        self.c.max_chunks = 1 if self.threads == 1 else self.threads * CHUNKS_PER_THREAD
        with nogil:
            outcome = mmk_run(self.kernel.functions, &self.c)
        raise_pending()
        if outcome == MMK_OUT_OF_MEMORY:
            raise MemoryError(f"{self.kernel.name}: out of memory")
        if outcome:
            raise ValueError(self.c.message.decode())
        return 0


def call(str kernel, str function=None, /, **arguments) -> tuple:
    """Run a kernel and return its outputs.

    The names and the defaults of the arguments are the row's.  Messages about them begin with `function`, by default
    the kernel's name.
    """
    cdef _Job job = _Job()
    cdef mmk_call *c = &job.c
    job.kernel = _KERNELS.get(kernel)
    if job.kernel is None:
        raise ImportError(f"{__name__} has no kernel {kernel}; if it is a new one, build and install the package again")
    job.function = kernel if function is None else function
    for name in arguments:
        if name not in job.kernel.names:
            raise TypeError(f"{job.function}: there is no argument {name}, only {', '.join(job.kernel.names)}")
    if not job.set_inputs(arguments):
        job.convert_inputs(arguments)
    job.set_attributes(arguments)
    c.name = job.kernel.functions.name
    c.is_interrupted = _is_interrupted
    job.prepare()
    outputs = None if c.late_outputs else job.new_outputs()
    c.scratch = mmk_allocate_scratch(c.scratch_size, &job.memory)
    if c.scratch_size and c.scratch == NULL:
        raise MemoryError(f"{kernel}: out of memory")
    job.run()
    if outputs is None:
        outputs = job.new_outputs()
    if job.cast is not None:
        outputs = [array.astype(job.cast) if array.dtype == _float32 else array for array in outputs]
    return tuple(outputs)
