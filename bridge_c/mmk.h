/* mmk.h - the contract between the kernels and the front ends that call them.
 *
 * A kernel is two functions in Cython or C, mmk_NAME_prepare and mmk_NAME_run:
 *
 *   prepare(call)                           checks the inputs and attributes, sets the shapes of the outputs, the sizes
 *                                           of the scratch memory and how the work is split; 0, or -1 with
 *                                           call->message set
 *   run(call, phase, begin, end, scratch)   does the work [begin, end) of a phase; ranges of one phase may run at the
 *                                           same time on several threads, each with scratch memory of its own.  It
 *                                           allocates nothing, and fails, by mmk_fail, only at a limit that prepare
 *                                           could not check
 *
 * Another thread may write the inputs during the call.  So a value that decides about addresses is read once, or its
 * input is `copied` in the row (operators.h): prepare and run then see the same values.
 *
 * A front end (numpy_api.pyx for numpy, node.c for ONNX Runtime) fills in the inputs and attributes, calls prepare,
 * allocates, has mmk_run run one phase after another, and returns the outputs.  So every check, default and formula is
 * written once, and the front ends cannot disagree.  Nothing here depends on Python or ONNX Runtime. */
#ifndef MMK_H
#define MMK_H
#include <stddef.h>
#include <stdint.h>

enum {
    MMK_MAX_RANK = 16,
    MMK_MAX_INPUTS = 6,
    MMK_MAX_OUTPUTS = 3,
    MMK_MAX_ATTRIBUTES = 16,
    MMK_MAX_PHASES = 4,
    MMK_MAX_DIMENSIONS = 16, /* named dimensions in the shapes of one operator */
    MMK_MESSAGE = 320
};

/* Element types, numbered as ONNX numbers them. */
enum {
    MMK_ABSENT = 0, /* an optional input that was left out */
    MMK_FLOAT32 = 1,
    MMK_UINT8 = 2,
    MMK_INT8 = 3,
    MMK_UINT16 = 4,
    MMK_INT16 = 5,
    MMK_INT32 = 6,
    MMK_INT64 = 7,
    MMK_BOOL = 9,
    MMK_FLOAT64 = 11,
    MMK_UINT32 = 12,
    MMK_UINT64 = 13
};

typedef struct {
    void *data; /* dense, row-major; may be NULL where size is 0 */
    int64_t shape[MMK_MAX_RANK];
    int64_t size; /* the product of the shape */
    int32_t rank;
    int32_t type;
    int32_t channels_last; /* whether the data is [N, H, W, C]: only where the row allows it (operators.h) */
} mmk_tensor;

typedef union {
    int64_t i;
    double f;
} mmk_attribute;

typedef struct {
    const char *name;
    size_t length; /* of the name */
    int64_t size;
} mmk_dimension;

struct mmk_call;
typedef void (*mmk_chunk)(void *loop, size_t chunk);
typedef void (*mmk_body)(struct mmk_call *call, void *argument, int64_t begin, int64_t end);

typedef struct mmk_call {
    const char *name; /* of the operator, for messages */
    mmk_tensor inputs[MMK_MAX_INPUTS];
    mmk_tensor outputs[MMK_MAX_OUTPUTS];
    mmk_attribute attributes[MMK_MAX_ATTRIBUTES];

    /* Set by prepare. */
    int32_t phases;
    int32_t late_outputs;         /* whether the shapes of the outputs are known only after the last phase, which sets
                                     them, and their data in scratch memory, which the front end copies */
    int64_t work[MMK_MAX_PHASES]; /* each phase is the range [0, work); a phase may set that of later ones */
    double nanoseconds[MMK_MAX_PHASES];         /* that a unit of work takes */
    size_t scratch_size;                        /* bytes shared by all phases */
    size_t worker_scratch_size[MMK_MAX_PHASES]; /* bytes of scratch memory that each running range of a phase gets, not
                                                   initialised; a phase may set that of later ones */

    void *scratch; /* allocated by the front end and aligned to 64 bytes, like the workers' */

    /* Set by the front end, if a loop may be split into several chunks: runs them on its threads. */
    void (*parallel_for)(struct mmk_call *call, mmk_chunk run_chunk, void *loop, size_t chunks);
    void *front_end;    /* its own */
    int32_t max_chunks; /* of a loop */
    int32_t min_chunk;  /* nanoseconds of work that are worth another thread */
    double duration;    /* of the loop that is running in chunks, in nanoseconds, on one thread */
    int32_t is_split;   /* whether a loop is running in chunks; loops inside it run on the thread that calls them */

    int32_t stopped; /* by mmk_fail or by an interrupt: all ranges return early, and the outputs are not used */
    int32_t asked;   /* when `is_interrupted` was last called */
    int (*is_interrupted)(void); /* the front end's: 1, 0, or -1 if this thread cannot know; NULL: calls cannot be
                                    interrupted */

    int32_t dimension_count;
    mmk_dimension dimensions[MMK_MAX_DIMENSIONS];
    char message[MMK_MESSAGE];
} mmk_call;

typedef struct {
    const char *name;
    int (*prepare)(mmk_call *);
    void (*run)(mmk_call *, int phase, int64_t begin, int64_t end, void *scratch);
} mmk_operator;

/* Compiles a hot loop for two instruction sets, of which the loader picks one: `cdef simd_void f(...)` in Cython.
 * "avx2" rather than an arch=: every gcc knows it, it covers AMD, and it brings no fused multiply-add, so both versions
 * give the same bits.  AVX-512 gained nothing in loops that gcc vectorises; those written for it stand in files of
 * their own, such as region_lanes.h. */
#if !defined(MMK_NO_CLONES) && defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && \
    ((defined(__GNUC__) && !defined(__clang__)) || (defined(__clang__) && __clang_major__ >= 14))
#define MMK_SIMD __attribute__((target_clones("default", "avx2")))
#define MMK_HAS_CLONES 1
#else
#define MMK_SIMD
#define MMK_HAS_CLONES 0
#endif

/* gcc's unroll-and-jam makes the sampling loops two times slower; clang does not know the option. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-loop-unroll-and-jam")
#endif

/* The kernels of the library, terminated by a NULL name: a table that mmort.build generates from the sources, with
 * MMK_DECLARE(name) and MMK_ENTRY(name) for each kernel. */
extern const mmk_operator mmk_operators[];

#define MMK_DECLARE(name)                 \
    int mmk_##name##_prepare(mmk_call *); \
    void mmk_##name##_run(mmk_call *, int phase, int64_t begin, int64_t end, void *scratch);
#define MMK_ENTRY(name) {#name, mmk_##name##_prepare, mmk_##name##_run}

enum { MMK_STOPPED = -1, MMK_OUT_OF_MEMORY = -2 };

/* Runs all phases of a call, and returns 0, MMK_STOPPED or MMK_OUT_OF_MEMORY. */
int mmk_run(const mmk_operator *kernel, mmk_call *call);

/* Allocates scratch memory, aligned to 64 bytes, for a front end, which frees `*memory`.  Returns NULL if there is not
 * enough memory, or `size` is 0. */
void *mmk_allocate_scratch(size_t size, void **memory);

/* The instruction sets that kernels may have versions for, in ascending order.  MMK_AVX2 includes fused multiply-add:
 * versions that use it are chosen by mmk_simd, and documented, because their results have other bits. */
enum { MMK_BASELINE, MMK_AVX2, MMK_AVX512, MMK_SIMD_LEVELS };

/* Returns the best that this machine has, up to the limit, which only tests set. */
int mmk_simd(void);
void mmk_limit_simd(int level);

/* Returns the name of mmk_simd(): "baseline", "avx2" or "avx512". */
const char *mmk_simd_level(void);

/* ---- functions for prepare and run ---- */

/* Stops the call with the message "<operator>: <text>", unless it is stopped already, and returns -1. */
int mmk_fail(mmk_call *call, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* ---- functions for run ---- */

/* Returns whether the call is stopped, so that a range should return.  Ranges that may take longer than 0.1 seconds ask
 * between steps of a microsecond or more; the front ends ask between ranges. */
int mmk_is_stopped(mmk_call *call);

/* Runs the ranges of a loop over `work` units, each of about `nanoseconds`, and returns when all are done.  They run on
 * several threads if the loop is long enough and the phase that calls it runs in one range, as a phase of one unit
 * does; otherwise on the calling thread.  For phases that alternate between parallel and serial work. */
void mmk_parallel(mmk_call *call, int64_t work, double nanoseconds, mmk_body body, void *argument);

/* ---- functions for prepare ---- */

/* Checks that input i has the shape `required`, for instance "[K, 5]", in the language of shapes.h.  Returns 0, or -1
 * with a message that has the required and the given shape. */
int mmk_check_shape(mmk_call *call, int i, const char *argument, const char *required);

/* Sets the type and the shape of output i.  Returns 0, or -1 if the output would not fit into the address space. */
int mmk_set_output(mmk_call *call, int i, int type, int rank, const int64_t *shape);

/* Refuses a call of more steps, called "samples" for instance, than 2**32 and 2**14 for each element of its inputs and
 * outputs.  For operators whose work can be far larger than what they read and write.  Returns 0, or -1. */
int mmk_check_steps(mmk_call *call, double steps, const char *name);

/* Adds a phase of `work` units, each of about `nanoseconds`; the call fails if it has more than MMK_MAX_PHASES. */
void mmk_add_phase(mmk_call *call, int64_t work, double nanoseconds);

/* Asks the operating system for large pages: several MB of new memory then take a fraction of the time to fill. */
void mmk_ask_for_large_pages(void *memory, size_t size);

#endif
