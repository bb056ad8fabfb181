"""mmk.h for Cython: nothing but declarations, so that cimporting it needs no module at run time."""
from libc.stdint cimport int32_t, int64_t

cdef extern from "mmk.h" nogil:
    enum:
        MMK_MAX_RANK
        MMK_MAX_INPUTS
        MMK_MAX_OUTPUTS
        MMK_MAX_ATTRIBUTES
        MMK_ABSENT
        MMK_FLOAT32
        MMK_UINT8
        MMK_INT8
        MMK_UINT16
        MMK_INT16
        MMK_INT32
        MMK_INT64
        MMK_BOOL
        MMK_FLOAT64
        MMK_UINT32
        MMK_UINT64

    ctypedef struct mmk_tensor:
        void *data
        int64_t shape[16]
        int64_t size
        int32_t rank
        int32_t type
        int32_t channels_last

    ctypedef union mmk_attribute:
        int64_t i
        double f

    ctypedef void (*mmk_chunk)(void *loop, size_t chunk) noexcept nogil
    ctypedef struct mmk_call
    ctypedef void (*mmk_body)(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil

    ctypedef struct mmk_call:
        const char *name
        mmk_tensor inputs[6]
        mmk_tensor outputs[3]
        mmk_attribute attributes[16]
        int32_t phases
        int32_t late_outputs
        int64_t work[4]
        double nanoseconds[4]
        size_t scratch_size
        size_t worker_scratch_size[4]
        void *scratch
        void (*parallel_for)(mmk_call *, mmk_chunk run_chunk, void *loop, size_t chunks) noexcept nogil
        void *front_end
        int32_t max_chunks
        int32_t min_chunk
        int32_t is_split
        int32_t stopped
        int (*is_interrupted)() noexcept nogil
        char message[320]

    ctypedef struct mmk_operator:
        const char *name
        int (*prepare)(mmk_call *) noexcept nogil
        void (*run)(mmk_call *, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil

    # the return type of a hot loop that is compiled once for each SIMD level
    ctypedef void simd_void "MMK_SIMD void"

    enum:
        MMK_STOPPED
        MMK_OUT_OF_MEMORY
        MMK_SIMD_LEVELS

    const mmk_operator mmk_operators[]
    int mmk_run(const mmk_operator *kernel, mmk_call *call) noexcept
    void mmk_limit_simd(int level) noexcept
    const char *mmk_simd_level() noexcept
    void *mmk_allocate_scratch(size_t size, void **memory) noexcept
    int mmk_fail(mmk_call *call, const char *format, ...) noexcept
    int mmk_is_stopped(mmk_call *call) noexcept
    void mmk_parallel(mmk_call *call, int64_t work, double nanoseconds, mmk_body body, void *argument) noexcept
    int mmk_check_shape(mmk_call *call, int i, const char *argument, const char *required) noexcept
    int mmk_set_output(mmk_call *call, int i, int type, int rank, const int64_t *shape) noexcept
    int mmk_check_steps(mmk_call *call, double steps, const char *name) noexcept
    void mmk_add_phase(mmk_call *call, int64_t work, double nanoseconds) noexcept
    void mmk_ask_for_large_pages(void *memory, size_t size) noexcept
