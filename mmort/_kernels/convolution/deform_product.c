/* deform_product.c - the product of deformable convolution, compiled for three instruction sets. */
#include "deform_product.h"

#include "mmk.h"

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#else
#define INLINE static inline
#define UNROLL
#endif

/* 3 x 4 vectors of 16 registers */
enum { ROWS_BASELINE = 3, FEW_ROWS_BASELINE = 3 };
#define TARGET
#define VECTOR 16
#define ROWS ROWS_BASELINE
#define FEW_ROWS FEW_ROWS_BASELINE
#define PANELS 1
#define NAME(name) name##_baseline_float
#define REAL float
#include "deform_product_loops.h"
#define NAME(name) name##_baseline_double
#define REAL double
#include "deform_product_loops.h"
#undef TARGET
#undef VECTOR
#undef ROWS
#undef FEW_ROWS
#undef PANELS

#if MMK_HAS_CLONES
/* Only from here on: with fused multiply-add the product is twice as fast. */
#ifdef __clang__
#pragma clang fp contract(fast)
#else
#pragma GCC optimize("fp-contract=fast")
#endif

/* 6 x 2 vectors of 16 registers */
enum { ROWS_AVX2 = 6, FEW_ROWS_AVX2 = 3 };
#define TARGET __attribute__((target("avx2,fma")))
#define VECTOR 32
#define ROWS ROWS_AVX2
#define FEW_ROWS FEW_ROWS_AVX2
#define PANELS 1
#define NAME(name) name##_avx2_float
#define REAL float
#include "deform_product_loops.h"
#define NAME(name) name##_avx2_double
#define REAL double
#include "deform_product_loops.h"
#undef TARGET
#undef VECTOR
#undef ROWS
#undef FEW_ROWS
#undef PANELS

/* 14 x 2 vectors of 32 registers */
enum { ROWS_AVX512 = 14, FEW_ROWS_AVX512 = 7 };
#define TARGET __attribute__((target("avx512f,fma")))
#define VECTOR 64
#define ROWS ROWS_AVX512
#define FEW_ROWS FEW_ROWS_AVX512
#define PANELS 2
#define NAME(name) name##_avx512_float
#define REAL float
#include "deform_product_loops.h"
#define NAME(name) name##_avx512_double
#define REAL double
#include "deform_product_loops.h"

#define CHOOSE(avx512, avx2, baseline) \
    (mmk_simd() == MMK_AVX512 ? (avx512) : mmk_simd() == MMK_AVX2 ? (avx2) : (baseline))
#else
#define CHOOSE(avx512, avx2, baseline) (baseline)
#endif

ptrdiff_t mmk_product_rows(void) { return CHOOSE(FEW_ROWS_AVX512, FEW_ROWS_AVX2, FEW_ROWS_BASELINE); }

void mmk_product_float(const mmk_product_shape *shape, const float *columns, const float *weights, float *sums) {
    CHOOSE(product_avx512_float, product_avx2_float, product_baseline_float)(shape, columns, weights, sums);
}

void mmk_product_double(const mmk_product_shape *shape, const double *columns, const double *weights, double *sums) {
    CHOOSE(product_avx512_double, product_avx2_double, product_baseline_double)(shape, columns, weights, sums);
}
