/* lanes.h - running extrema of eight adjacent elements at a time in AVX2, for scan.pyx.
 *
 * Three steps combine each element with those before it in its vector, and one more with the vectors before.  There
 * must be no NaN: then the order of these steps changes nothing.  No compiler finds such loops by itself.  Elsewhere
 * has_lanes() is 0, and scan.pyx goes through one element after another. */
#ifndef MMORT_LANES_H
#define MMORT_LANES_H
#include "mmk.h"

enum { LANES = 8, KEY_BITS = 6, KEY_STEP = 1 << KEY_BITS };

#if MMK_HAS_CLONES
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

static inline int has_lanes(void) { return mmk_simd() >= MMK_AVX2; }

/* `choose(a, b)` is a where it is better, and b where they are equal. */
#define FLOAT_MAX(a, b) _mm256_max_ps(a, b)
#define FLOAT_MIN(a, b) _mm256_min_ps(a, b)
#define INT_MAX_OF(a, b) _mm256_max_epi32(a, b)
#define KEEP_EARLIER(choose, earlier, later) choose(later, earlier)
#define KEEP_LATER(choose, earlier, later) choose(earlier, later)

/* Replaces each lane of v by the best up to there; `carry`, in all its lanes, is the best so far. */
#define SCAN(type, permute, permute_all, keep, choose, v, carry)                        \
    do {                                                                                \
        v = keep(choose, permute(v, _MM_SHUFFLE(2, 2, 0, 0)), v);                       \
        v = keep(choose, permute(v, _MM_SHUFFLE(1, 1, 1, 0)), v);                       \
        v = keep(choose, permute_all(v, _mm256_setr_epi32(0, 1, 2, 3, 3, 3, 3, 3)), v); \
        type last_ = permute_all(v, _mm256_set1_epi32(7));                              \
        v = keep(choose, carry, v);                                                     \
        carry = keep(choose, carry, last_);                                             \
    } while (0)
#define SCAN_FLOATS(keep, choose, v, carry) \
    SCAN(__m256, _mm256_permute_ps, _mm256_permutevar8x32_ps, keep, choose, v, carry)
#define SCAN_INTS(keep, choose, v, carry) \
    SCAN(__m256i, _mm256_shuffle_epi32, _mm256_permutevar8x32_epi32, keep, choose, v, carry)

/* Pools the first steps of a row, as many as fill vectors, from `largest` on, the largest element so far; returns how
 * many.  `stride` is 1 or -1; an element must be larger to replace an equal one before it. */
static AVX2 ptrdiff_t pool_lanes(const float *x, float *y, ptrdiff_t steps, ptrdiff_t stride, float *largest) {
    const __m256i reversed = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    __m256 carry = _mm256_set1_ps(*largest), v;
    ptrdiff_t k = 0;
    if (stride == 1) {
        for (; k + LANES <= steps; k += LANES) {
            v = _mm256_loadu_ps(x + k);
            SCAN_FLOATS(KEEP_EARLIER, FLOAT_MAX, v, carry);
            _mm256_storeu_ps(y + k, v);
        }
    } else {
        for (; k + LANES <= steps; k += LANES) {
            v = _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + 1 - LANES - k), reversed);
            SCAN_FLOATS(KEEP_EARLIER, FLOAT_MAX, v, carry);
            _mm256_storeu_ps(y + 1 - LANES - k, _mm256_permutevar8x32_ps(v, reversed));
        }
    }
    *largest = _mm256_cvtss_f32(carry);
    return k;
}

#define STORE_INTEGERS(v, integers)                                                                              \
    do {                                                                                                         \
        _mm256_storeu_si256((__m256i *)(integers), _mm256_cvtepi32_epi64(_mm256_castsi256_si128(v)));            \
        _mm256_storeu_si256((__m256i *)((integers) + 4), _mm256_cvtepi32_epi64(_mm256_extracti128_si256(v, 1))); \
    } while (0)

#define ACCUMULATE_FLOATS(choose)                                                                                 \
    for (ptrdiff_t k = 0; k < steps; k += LANES) {                                                                \
        __m256 loaded = _mm256_loadu_ps(x + k), v = loaded;                                                       \
        SCAN_FLOATS(KEEP_LATER, choose, v, carry);                                                                \
        _mm256_storeu_ps(values + k, v);                                                                          \
        __m256i positions = _mm256_and_si256(numbers, _mm256_castps_si256(_mm256_cmp_ps(loaded, v, _CMP_EQ_OQ))); \
        SCAN_INTS(KEEP_LATER, INT_MAX_OF, positions, carried);                                                    \
        STORE_INTEGERS(positions, indices + k);                                                                   \
        numbers = _mm256_add_epi32(numbers, _mm256_set1_epi32(LANES));                                            \
    }

/* Accumulates `steps` elements, a multiple of LANES, of which the first has the index `first`.  `best` and `index` are
 * the extremum so far and its index; an equal element replaces it. */
static AVX2 void accumulate_floats(const float *x, float *values, int64_t *indices, ptrdiff_t steps, int64_t first,
                                   int maximum, float *best, int64_t *index) {
    __m256 carry = _mm256_set1_ps(*best);
    __m256i carried = _mm256_set1_epi32((int32_t)*index);
    __m256i numbers = _mm256_add_epi32(_mm256_set1_epi32((int32_t)first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    if (maximum)
        ACCUMULATE_FLOATS(FLOAT_MAX)
    else
        ACCUMULATE_FLOATS(FLOAT_MIN)
    *best = _mm256_cvtss_f32(carry);
    *index = _mm256_extract_epi32(carried, 0);
}

/* Accumulates small integers, `steps` of them, a multiple of LANES and at most 62.  The key of element k is
 * value * KEY_STEP + k + 1, and the best so far has the key `best`, with 0 for k + 1; the keys become those of the
 * maxima. */
static AVX2 void accumulate_keys(int32_t *keys, int64_t *indices, ptrdiff_t steps, int64_t first, int32_t best,
                                 int64_t *index) {
    const __m256i before = _mm256_set1_epi32((int32_t)*index), start = _mm256_set1_epi32((int32_t)first - 1);
    const __m256i mask = _mm256_set1_epi32(KEY_STEP - 1);
    __m256i carry = _mm256_set1_epi32(best), numbers = before;
    for (ptrdiff_t k = 0; k < steps; k += LANES) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(keys + k));
        SCAN_INTS(KEEP_LATER, INT_MAX_OF, v, carry);
        _mm256_storeu_si256((__m256i *)(keys + k), v);
        numbers = _mm256_and_si256(v, mask);
        __m256i is_before = _mm256_cmpeq_epi32(numbers, _mm256_setzero_si256());
        numbers = _mm256_blendv_epi8(_mm256_add_epi32(start, numbers), before, is_before);
        STORE_INTEGERS(numbers, indices + k);
    }
    *index = _mm256_extract_epi32(numbers, LANES - 1);
}
#else
static inline int has_lanes(void) { return 0; }
static inline ptrdiff_t pool_lanes(const float *x, float *y, ptrdiff_t steps, ptrdiff_t stride, float *largest) {
    (void)x, (void)y, (void)steps, (void)stride, (void)largest;
    return 0;
}
static inline void accumulate_floats(const float *x, float *values, int64_t *indices, ptrdiff_t steps, int64_t first,
                                     int maximum, float *best, int64_t *index) {
    (void)x, (void)values, (void)indices, (void)steps, (void)first, (void)maximum, (void)best, (void)index;
}
static inline void accumulate_keys(int32_t *keys, int64_t *indices, ptrdiff_t steps, int64_t first, int32_t best,
                                   int64_t *index) {
    (void)keys, (void)indices, (void)steps, (void)first, (void)best, (void)index;
}
#endif
#endif
