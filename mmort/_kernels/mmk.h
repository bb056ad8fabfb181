/* mmk.h - the contract between the kernels and the doors that call them.
 *
 * A kernel is two C functions written in Cython, declared below by one line in MMK_OPERATORS:
 *
 *   prepare(call)                    checks the inputs and attributes, sets the shapes of the outputs, says how much
 *                                    scratch memory it wants and how the work is cut; 0, or -1 with call->message set
 *   run(call, phase, begin, end)     does the pieces [begin, end) of a phase; ranges of one phase may run at the same
 *                                    time on several threads; 0, or -1 when out of memory
 *
 * A door (door.pyx for numpy, bridge_c/bridge.c for ONNX Runtime) fills in the inputs and attributes, calls prepare,
 * allocates, runs phase after phase and hands out the outputs.  So every check, default order and formula stands
 * once, and the doors cannot disagree.  Neither Python nor ONNX Runtime is known here. */
#ifndef MMK_H
#define MMK_H
#include <stddef.h>
#include <stdint.h>

/* One line an operator. */
#define MMK_OPERATORS(X)                \
    X(box_iou)                          \
    X(box_iou_rotated)                  \
    X(corner_pool)                      \
    X(cummax)                           \
    X(cummin)                           \
    X(deform_conv2d)                    \
    X(grid_sample)                      \
    X(group_norm)                       \
    X(modulated_deform_conv2d)          \
    X(multi_scale_deformable_attention) \
    X(multiclass_nms)                   \
    X(nms)                              \
    X(nms_match)                        \
    X(nms_match_pairs)                  \
    X(nms_rotated)                      \
    X(nms_rotated_indices)              \
    X(roi_align)                        \
    X(roi_align_rotated)                \
    X(rotated_feature_align)            \
    X(soft_nms)

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

typedef struct {
    const char *name; /* of the operator, for messages */
    mmk_tensor inputs[MMK_MAX_INPUTS];
    mmk_tensor outputs[MMK_MAX_OUTPUTS];
    mmk_attribute attributes[MMK_MAX_ATTRIBUTES];

    /* Set by prepare. */
    int32_t phases;
    int32_t late_outputs;          /* the sizes of the outputs are known only after the last phase, which leaves their
                                      shapes and their data (in scratch memory) in `outputs` for the door to copy */
    int64_t work[MMK_MAX_PHASES];  /* each phase is the range [0, work); a phase may set that of later ones */
    int64_t grain[MMK_MAX_PHASES]; /* pieces of work that take about 20 microseconds */
    size_t scratch_size;           /* bytes */

    void *scratch; /* allocated by the door, aligned to 64 bytes */
    int32_t dimension_count;
    mmk_dimension dimensions[MMK_MAX_DIMENSIONS];
    char message[MMK_MESSAGE];
} mmk_call;

typedef struct {
    const char *name;
    int (*prepare)(mmk_call *);
    int (*run)(mmk_call *, int phase, int64_t begin, int64_t end);
} mmk_operator;

/* One source, two machine versions of a hot loop, picked by the loader: `cdef simd_void f(...)` in Cython.  "avx2" and
 * not an arch=: every gcc knows it, AMD gets it, and it brings no fused multiply-add, so both versions give the same
 * bits.  AVX-512 bought nothing. */
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

#define MMK_DECLARE(name)                 \
    int mmk_##name##_prepare(mmk_call *); \
    int mmk_##name##_run(mmk_call *, int phase, int64_t begin, int64_t end);
MMK_OPERATORS(MMK_DECLARE)
#undef MMK_DECLARE

/* check.c: what every prepare uses. */

/* The operators above, closed by a NULL name. */
extern const mmk_operator mmk_operators[];

/* "avx2" or "baseline": the version of the hot loops that this machine runs. */
const char *mmk_simd_level(void);

/* Writes "<operator>: <text>" as the call's message and returns -1. */
int mmk_fail(mmk_call *call, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* 0 if input i has the shape written in `required`, e.g. "[K, 5]": a number is that size; a name stands for one size
 * throughout the call; "..." is any further dimensions.  Else -1, and the message says what is required and what
 * came. */
int mmk_check_shape(mmk_call *call, int i, const char *argument, const char *required);

/* Sets type and shape of output i; -1 if that is more than the address space holds. */
int mmk_set_output(mmk_call *call, int i, int type, int rank, const int64_t *shape);

/* One phase of `work` pieces, each of about `nanoseconds`. */
void mmk_add_phase(mmk_call *call, int64_t work, double nanoseconds);

/* For several MB of fresh memory that are about to be filled: with large pages that takes a fraction of the time. */
void mmk_ask_for_large_pages(void *memory, size_t size);

/* order.pyx: stable sorting.  `items` and `spare` have `count` places each; returns the one that holds the result. */

typedef struct {
    uint64_t key;
    int64_t index;
} mmk_item;

/* By ascending key. */
mmk_item *mmk_sort(mmk_item *items, mmk_item *spare, int64_t count);

/* By descending score (float32 or float64); NaN comes last.  Fills in the items; `index` is the place in `scores`. */
mmk_item *mmk_order(const void *scores, int type, mmk_item *items, mmk_item *spare, int64_t count);

/* nms.pyx: suppression among boxes of one class.  `places` are the boxes' positions in `boxes`, by descending score; a
 * flag is set for each that a better one suppresses, or that is not among the `most` best kept (0: all).  Scratch
 * memory: mmk_suppress_size bytes a box, aligned for a double. */
size_t mmk_suppress_size(int type);
void mmk_suppress(int type, const void *boxes, const int64_t *places, int64_t count, double threshold, double offset,
                  int64_t most, int32_t *flags, void *scratch);

/* soft_nms.pyx: the same for Soft-NMS.  `planes` holds x1, y1, x2, y2, area and score of all boxes, plane after plane;
 * on return the boxes left come first, by descending score, and their number is returned.  `method`: 0 naive, 1 linear,
 * 2 gaussian.  `indices` follow the boxes. */
int64_t mmk_soft_suppress(int type, void *planes, int64_t *indices, int64_t count, double threshold, double sigma,
                          double least, int64_t method, double offset);
#endif
