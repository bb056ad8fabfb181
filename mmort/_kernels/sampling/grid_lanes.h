/* grid_lanes.h - float32 pixels gathered from a plane in AVX2 and AVX-512: a vector of positions at a time is located
 * for grid_sample's nearest and bilinear modes, and a vector of bins is averaged for roi_align_rotated.
 *
 * The arithmetic is that of grid_locations.pxd, grid_reading.pxd and sampling.pxd, without fused multiply-add, so the
 * results are the same.  A weight of -1 marks a pixel that must not be read. */
#ifndef MMORT_GRID_LANES_H
#define MMORT_GRID_LANES_H
#include "mmk.h"

typedef struct {
    float size;
    float factor;      /* pixel = (coordinate + 1) * factor - shift */
    float low, span;   /* pixels are reflected at low and low + span; a span of 0: they are not */
    float first, last; /* and then clamped */
} MmkGridAxis;

typedef struct {
    MmkGridAxis x, y;
    float shift;
    int32_t stride, step; /* numbers from one row, and from one pixel, to the next */
} MmkGridMap;

/* Planes that are read at the same positions, `size` numbers apart, and their results, `line` apart. */
typedef struct {
    const float *x;
    ptrdiff_t size, count;
    float *y;
    ptrdiff_t line;
} MmkPlanes;

#if MMK_HAS_CLONES
#include <immintrin.h>

#define NAME(function) function##_avx2
#define TARGET __attribute__((target("avx2")))
#define WIDTH 8
#define FLOATS __m256
#define INTS __m256i
#define MASK __m256
#define OP(name) _mm256_##name
#define COMPARE(a, b, how) _mm256_cmp_ps(a, b, how)
#define BOTH(a, b) _mm256_and_ps(a, b)
#define ANY(mask) _mm256_movemask_ps(mask)
#define CHOOSE_FLOATS(mask, a, b) _mm256_blendv_ps(b, a, mask)
#define IS_INDEX(v) _mm256_castsi256_ps(_mm256_cmpgt_epi32(v, _mm256_set1_epi32(-1)))
#define NO_INTS _mm256_setzero_si256()
#define BOTH_INTS(a, b) _mm256_and_si256(a, b)
#define IS_EQUAL(a, b) _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))
#define IS_ODD(v) _mm256_castsi256_ps(_mm256_slli_epi32(v, 31))
#define IS_BELOW(v, size) BOTH(IS_INDEX(v), _mm256_castsi256_ps(_mm256_cmpgt_epi32(size, v)))
#define FLOOR(v) _mm256_floor_ps(v)
#define ROUND(v) _mm256_cvttps_epi32(_mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define GATHER(plane, pixels, mask) _mm256_mask_i32gather_ps(_mm256_setzero_ps(), plane, pixels, mask, 4)
#define GATHER_PAIRS(pairs, pixels) _mm256_castpd_ps(_mm256_i32gather_pd((const void *)(pairs), pixels, 4))
#define LOWER_INTS(v) _mm256_castsi256_si128(v)
#define UPPER_INTS(v) _mm256_extracti128_si256(v, 1)
#define LOAD_INTS(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE_INTS(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define IN_ORDER(v) _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), _MM_SHUFFLE(3, 1, 2, 0)))
#define EVEN(a, b) IN_ORDER(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)))
#define ODD(a, b) IN_ORDER(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)))
#include "grid_lanes_loops.h"
#undef NAME
#undef TARGET
#undef WIDTH
#undef FLOATS
#undef INTS
#undef MASK
#undef OP
#undef COMPARE
#undef BOTH
#undef ANY
#undef CHOOSE_FLOATS
#undef IS_INDEX
#undef NO_INTS
#undef BOTH_INTS
#undef IS_EQUAL
#undef IS_ODD
#undef IS_BELOW
#undef FLOOR
#undef ROUND
#undef GATHER
#undef GATHER_PAIRS
#undef LOWER_INTS
#undef UPPER_INTS
#undef LOAD_INTS
#undef STORE_INTS
#undef EVEN
#undef ODD

#define NAME(function) function##_avx512
#define TARGET __attribute__((target("avx512f")))
#define WIDTH 16
#define FLOATS __m512
#define INTS __m512i
#define MASK __mmask16
#define OP(name) _mm512_##name
#define COMPARE(a, b, how) _mm512_cmp_ps_mask(a, b, how)
#define BOTH(a, b) ((__mmask16)((a) & (b)))
#define ANY(mask) (mask)
#define CHOOSE_FLOATS(mask, a, b) _mm512_mask_blend_ps(mask, b, a)
#define IS_INDEX(v) _mm512_cmpgt_epi32_mask(v, _mm512_set1_epi32(-1))
#define NO_INTS _mm512_setzero_si512()
#define BOTH_INTS(a, b) _mm512_and_si512(a, b)
#define IS_EQUAL(a, b) _mm512_cmpeq_epi32_mask(a, b)
#define IS_ODD(v) _mm512_test_epi32_mask(v, _mm512_set1_epi32(1))
#define IS_BELOW(v, size) _mm512_cmplt_epu32_mask(v, size)
#define FLOOR(v) _mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define ROUND(v) _mm512_cvt_roundps_epi32(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define GATHER(plane, pixels, mask) _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, pixels, plane, 4)
#define GATHER_PAIRS(pairs, pixels) _mm512_castpd_ps(_mm512_i32gather_pd(pixels, pairs, 4))
#define LOWER_INTS(v) _mm512_castsi512_si256(v)
#define UPPER_INTS(v) _mm512_extracti64x4_epi64(v, 1)
#define LOAD_INTS(p) _mm512_loadu_si512(p)
#define STORE_INTS(p, v) _mm512_storeu_si512(p, v)
#define EVERY_SECOND _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define EVEN(a, b) _mm512_permutex2var_ps(a, EVERY_SECOND, b)
#define ODD(a, b) _mm512_permutex2var_ps(a, _mm512_add_epi32(EVERY_SECOND, _mm512_set1_epi32(1)), b)
#include "grid_lanes_loops.h"

/* Returns how many positions are handled at a time, the least that the functions below take; 0: none. */
static inline int grid_lanes(void) {
    const int widths[MMK_SIMD_LEVELS] = {0, 8, 16};
    return widths[mmk_simd()];
}
#define CALL_LANES(lanes, function, ...) (lanes == 16 ? function##_avx512(__VA_ARGS__) : function##_avx2(__VA_ARGS__))
#else
static inline int grid_lanes(void) { return 0; }
#define CALL_LANES(lanes, function, ...) ((void)lanes)
#endif

static inline void sample_nearest_lanes(int lanes, const MmkGridMap *map, const float *grid, ptrdiff_t count,
                                        const MmkPlanes *planes) {
    CALL_LANES(lanes, sample_nearest, map, grid, count, planes);
}

/* `below` is the step to the next row; the planes have at least two columns. */
static inline void sample_bilinear_lanes(int lanes, const MmkGridMap *map, ptrdiff_t below, const float *grid,
                                         ptrdiff_t count, const MmkPlanes *planes) {
    CALL_LANES(lanes, sample_bilinear, map, below, grid, count, planes);
}

/* The same in two steps.  The weights of the four pixels are `line` apart. */
static inline void locate_bilinear_lanes(int lanes, const MmkGridMap *map, const float *grid, ptrdiff_t count,
                                         int32_t *pixels, float *weights, ptrdiff_t line) {
    CALL_LANES(lanes, locate_bilinear, map, grid, count, pixels, weights, line);
}

static inline void gather_bilinear_lanes(int lanes, const MmkPlanes *planes, ptrdiff_t below, const int32_t *pixels,
                                         const float *weights, ptrdiff_t line, ptrdiff_t count) {
    CALL_LANES(lanes, gather_bilinear, planes, below, pixels, weights, line, count);
}

/* There are at least as many bins, `planes->line`, as lanes, and the planes have at least two columns. */
static inline void sum_samples_lanes(int lanes, const MmkPlanes *planes, int32_t width, const int32_t *codes,
                                     const float *weights, ptrdiff_t samples, float divisor) {
    CALL_LANES(lanes, sum_samples, planes, width, codes, weights, samples, divisor);
}

/* Adds taps to the sums of `channels` adjacent channels, a multiple of 16. */
static inline void add_taps_lanes(int lanes, const float *pixels, const ptrdiff_t *offset, const float *weight,
                                  ptrdiff_t taps, ptrdiff_t channels, float *sums) {
    CALL_LANES(lanes, add_taps, pixels, offset, weight, taps, channels, sums);
}
#endif
