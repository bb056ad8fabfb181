"""The numpy side of the kernels: one function that calls any of them with arrays.

The other modules of this package hold no Python at all; this one holds no mathematics.
"""
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from mmk cimport *

import numpy

from mmort import _threads

cdef extern from *:
    """size_t mmort_describe(char *data, size_t size);  /* describe.c */"""
    size_t mmort_describe(char *data, size_t size)

cdef dict _NUMBERS = {}  # operator name -> place in mmk_operators

_TYPES = {"f": MMK_FLOAT32, "d": MMK_FLOAT64, "?": MMK_BOOL}
_TYPES.update((numpy.dtype(name).char, number) for name, number in (
    ("int8", MMK_INT8), ("int16", MMK_INT16), ("int32", MMK_INT32), ("int64", MMK_INT64),
    ("uint8", MMK_UINT8), ("uint16", MMK_UINT16), ("uint32", MMK_UINT32), ("uint64", MMK_UINT64)))
_DTYPES = {number: numpy.dtype(char) for char, number in _TYPES.items()}
if numpy.dtype("longlong").itemsize == 8:  # C has two names for 64 bits, and numpy keeps them apart
    _TYPES.update({"l" if numpy.dtype("int64").char == "q" else "q": MMK_INT64,
                   "L" if numpy.dtype("int64").char == "q" else "Q": MMK_UINT64})

cdef int _at = 0
while mmk_operators[_at].name != NULL:
    _NUMBERS[mmk_operators[_at].name.decode()] = _at
    _at += 1


def operators() -> tuple[str, ...]:
    """Names of all kernels."""
    return tuple(_NUMBERS)


def simd_level() -> str:
    """The machine version of the hot loops that is in use: "avx2" or "baseline"."""
    return mmk_simd_level().decode()


def describe() -> str:
    """The table of ONNX operators as JSON: what the ONNX Runtime library, where there is one, says of itself."""
    cdef size_t size = mmort_describe(NULL, 0)
    text = bytearray(size + 1)
    mmort_describe(text, size + 1)
    return text[:size].decode()


cdef class _Job:
    """One call under way: the C structure and everything that has to stay alive with it."""
    cdef mmk_call c
    cdef const mmk_operator *operator
    cdef Py_buffer[9] buffers  # of the inputs and outputs
    cdef int buffer_count
    cdef void *memory

    def __dealloc__(self):
        cdef int i
        for i in range(self.buffer_count):
            PyBuffer_Release(&self.buffers[i])
        free(self.memory)

    cdef Py_buffer *hold(self, object array, int flags) except NULL:
        cdef Py_buffer *view = &self.buffers[self.buffer_count]
        PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags)
        self.buffer_count += 1
        return view

    cdef int add_input(self, int i, object array) except -1:
        cdef mmk_tensor *tensor = &self.c.inputs[i]
        cdef Py_buffer *view
        cdef int d
        if array is None:
            return 0
        view = self.hold(array, 0)
        if view.ndim > MMK_MAX_RANK:
            name = self.c.name.decode()
            raise ValueError(f"{name}: arrays may have up to {MMK_MAX_RANK} dimensions, got {view.ndim}")
        tensor.type = _TYPES[view.format.decode()]
        tensor.rank = view.ndim
        tensor.data = view.buf
        tensor.size = view.len // view.itemsize
        for d in range(view.ndim):
            tensor.shape[d] = view.shape[d]
        return 0

    cdef object new_output(self, int i):
        """An array for output i, filled from the operator's scratch memory if that is where the output lies."""
        cdef mmk_tensor *tensor = &self.c.outputs[i]
        cdef int d
        array = numpy.empty(tuple([tensor.shape[d] for d in range(tensor.rank)]), _DTYPES[tensor.type])
        cdef Py_buffer *view = self.hold(array, PyBUF_WRITABLE)
        if not self.c.late_outputs:
            tensor.data = view.buf
        elif view.len:  # an output of nothing may lie nowhere, which memcpy does not take
            memcpy(view.buf, tensor.data, view.len)
        return array

    cpdef int piece(self, int phase, int64_t begin, int64_t end) except -1:
        cdef size_t scratch_size = self.c.worker_scratch_size[phase]
        cdef void *memory = NULL
        cdef void *scratch = mmk_allocate_scratch(scratch_size, &memory)
        if scratch_size and scratch == NULL:
            raise MemoryError(f"{self.c.name.decode()}: out of memory")
        with nogil:
            self.operator.run(&self.c, phase, begin, end, scratch)
            free(memory)
        return 0


def call(str operator, tuple inputs, tuple attributes) -> tuple:
    """Outputs of a kernel for C-contiguous arrays (None: left out) and numbers, both in the kernel's order."""
    cdef _Job job = _Job()
    cdef mmk_call *c = &job.c
    cdef int i, phase
    cdef int64_t pieces
    job.operator = &mmk_operators[<int>_NUMBERS[operator]]
    c.name = job.operator.name
    for i, array in enumerate(inputs):
        job.add_input(i, array)
    for i, value in enumerate(attributes):
        if type(value) is float:
            c.attributes[i].f = value
        else:
            c.attributes[i].i = value
    if job.operator.prepare(c):
        raise ValueError(c.message.decode())
    outputs = None
    if not c.late_outputs:
        outputs = _outputs(job)
    c.scratch = mmk_allocate_scratch(c.scratch_size, &job.memory)
    if c.scratch_size and c.scratch == NULL:
        raise MemoryError(f"{operator}: out of memory")
    for phase in range(c.phases):
        pieces = c.work[phase] // c.grain[phase]
        if pieces < _threads.FEWEST_PIECES or _threads.get_num_threads() == 1:
            job.piece(phase, 0, c.work[phase])
        else:
            _threads.split(job.piece, phase, c.work[phase], pieces)
    return _outputs(job) if outputs is None else outputs


cdef tuple _outputs(_Job job):
    cdef int i
    outputs = []
    for i in range(MMK_MAX_OUTPUTS):
        if job.c.outputs[i].type != MMK_ABSENT:
            outputs.append(job.new_output(i))
    return tuple(outputs)
