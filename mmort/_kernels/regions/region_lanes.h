/* region_lanes.h - float32 tiles in AVX2 and AVX-512: pixels and bins are transposed by blocks of vectors, and
 * roi_align's means are summed in two vectors of channels, which share the weights and the addresses of a sample.
 *
 * The arithmetic is that of roi_bins.pxd, without fused multiply-add, so the results are the same. */
#ifndef MMORT_REGION_LANES_H
#define MMORT_REGION_LANES_H
#include <math.h>

#include "mmk.h"

typedef struct { /* of one axis, as in roi_axis.pxd */
    ptrdiff_t bins;
    const ptrdiff_t *begin, *tap;
    const float *weight; /* readable up to the end of a block of 64 bytes, which it begins */
} MmkTaps;

typedef struct {
    MmkTaps rows, columns;
    float count; /* in a bin */
} MmkSamples;

typedef struct {
    char *memory;
    ptrdiff_t size;
} MmkBlock;

enum {
    MAX_LANES = 32,
    MAX_TILE = 16 << 20,  /* bytes of a tile with more than 8 channels; each thread has one */
    MAX_FETCHED = 1 << 18 /* bytes: roi_align of 28x28 bins gains (100 kB), of 56x56 loses (400 kB) */
};

/* Has the processor fetch part i of n of memory that will be written after the work at hand. */
static inline void fetch_part(const MmkBlock *block, ptrdiff_t i, ptrdiff_t n) {
#if defined(__GNUC__)
    if (block->size > MAX_FETCHED) return;
    for (ptrdiff_t byte = block->size * i / n; byte < block->size * (i + 1) / n; byte += 64)
        __builtin_prefetch(block->memory + byte, 1);
#else
    (void)block, (void)i, (void)n;
#endif
}

/* Returns whether a count of samples is a power of two, so that multiplying by its reciprocal is dividing by it. */
static inline int has_exact_reciprocal(double count) {
    int exponent;
    return frexp(count, &exponent) == 0.5;
}

#if MMK_HAS_CLONES
#include <immintrin.h>

enum { NOT_LAST, MULTIPLY, DIVIDE };

#define NAME(function) function##_avx2
#define TARGET __attribute__((target("avx2")))
#define WIDTH 8
#define FLOATS __m256
#define OP(name) _mm256_##name
#define LOAD_QUADS(from, steps)                                                                                        \
    _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((from) + (steps)[0])), _mm_loadu_ps((from) + (steps)[4]), \
                         1)
#include "region_lanes_loops.h"
#undef NAME
#undef TARGET
#undef WIDTH
#undef FLOATS
#undef OP
#undef LOAD_QUADS

#define NAME(function) function##_avx512
#define TARGET __attribute__((target("avx512f")))
#define WIDTH 16
#define FLOATS __m512
#define OP(name) _mm512_##name
#define INSERT_QUAD(v, i, from) _mm512_insertf32x4(v, _mm_loadu_ps(from), i)
#define LOAD_TWO_QUADS(from, steps) \
    INSERT_QUAD(_mm512_castps128_ps512(_mm_loadu_ps((from) + (steps)[0])), 1, (from) + (steps)[4])
#define LOAD_QUADS(from, steps) \
    INSERT_QUAD(INSERT_QUAD(LOAD_TWO_QUADS(from, steps), 2, (from) + (steps)[8]), 3, (from) + (steps)[12])
#include "region_lanes_loops.h"

/* Returns how many channels, two vectors, a tile may have for average_bins_lanes; 0: none. */
static inline ptrdiff_t mean_lanes(ptrdiff_t channels, ptrdiff_t pixels) {
    const int level = mmk_simd();
    for (ptrdiff_t lanes = level == MMK_AVX512 ? 32 : level == MMK_AVX2 ? 16 : 0; lanes >= 16; lanes /= 2)
        if (channels >= lanes && pixels <= MAX_TILE / (ptrdiff_t)sizeof(float) / lanes) return lanes;
    return 0;
}

static inline int has_transposition(void) { return mmk_simd() >= MMK_AVX2; }
#define CALL_LANES(is_wide, function, ...) ((is_wide) ? function##_avx512(__VA_ARGS__) : function##_avx2(__VA_ARGS__))
#else
static inline ptrdiff_t mean_lanes(ptrdiff_t channels, ptrdiff_t pixels) {
    (void)channels, (void)pixels;
    return 0;
}

static inline int has_transposition(void) { return 0; }
#define CALL_LANES(is_wide, function, ...) ((void)(is_wide))
#endif

/* Sets to[i * line + j] to from[j * stride + i], for i below `columns` and j below `rows`, which are at least 8. */
static inline void transpose_lanes(const float *from, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns, float *to,
                                   ptrdiff_t line) {
    CALL_LANES(mmk_simd() == MMK_AVX512 && rows >= 16 && columns >= 16, transpose, from, stride, rows, columns, to,
               line);
}

/* Sets tile[pixel][lane] to `count` adjacent pixels of the planes at `steps` from `planes`. */
static inline void copy_pixels_lanes(ptrdiff_t lanes, const float *planes, const ptrdiff_t *steps, ptrdiff_t count,
                                     float *tile) {
    CALL_LANES(lanes == 32 && count >= 16, copy_pixels, planes, steps, count, lanes, tile);
}

/* Sets bins[row][column][lane] to the mean of the samples, and has `next` fetched meanwhile.  `products` has room for
 * twice the taps of the columns, and 32. */
static inline void average_bins_lanes(ptrdiff_t lanes, const float *tile, const MmkSamples *samples, float *products,
                                      float *bins, const MmkBlock *next) {
    CALL_LANES(lanes == 32, average_bins, tile, samples, products, bins, next);
}
#endif
