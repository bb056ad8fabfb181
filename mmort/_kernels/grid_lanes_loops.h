/* grid_lanes_loops.h - the functions of grid_lanes.h, for vectors of WIDTH numbers.
 *
 * `count` is at least WIDTH; the last vector ends with the last position, and may begin in the vector before it. */
#define FOR_EACH_VECTOR(p) \
    for (ptrdiff_t p = 0; p < count; p = p + WIDTH < count && p + 2 * WIDTH > count ? count - WIDTH : p + WIDTH)

/* Reads WIDTH positions and maps them to pixel coordinates, clamped; NaN becomes the upper bound. */
static inline TARGET void NAME(read_positions)(const MmkGridMap *map, const float *grid, FLOATS *x, FLOATS *y) {
    const FLOATS one = OP(set1_ps)(1), shift = OP(set1_ps)(map->shift), low = OP(set1_ps)(map->is_border ? 0 : -2);
    const FLOATS first = OP(loadu_ps)(grid), second = OP(loadu_ps)(grid + WIDTH);
    FLOATS u = OP(mul_ps)(OP(add_ps)(EVEN(first, second), one), OP(set1_ps)(map->x_factor));
    FLOATS v = OP(mul_ps)(OP(add_ps)(ODD(first, second), one), OP(set1_ps)(map->y_factor));
    u = OP(max_ps)(low, OP(mul_ps)(OP(sub_ps)(u, shift), OP(set1_ps)(map->x_scale)));
    v = OP(max_ps)(low, OP(mul_ps)(OP(sub_ps)(v, shift), OP(set1_ps)(map->y_scale)));
    *x = OP(min_ps)(u, OP(set1_ps)(map->is_border ? map->width - 1 : map->width + 1));
    *y = OP(min_ps)(v, OP(set1_ps)(map->is_border ? map->height - 1 : map->height + 1));
}

static inline TARGET INTS NAME(index)(const MmkGridMap *map, INTS row, INTS column) {
    return OP(add_epi32)(OP(mullo_epi32)(row, OP(set1_epi32)(map->stride)), column);
}

/* Located and gathered at once, so that one vector is located while the last one's pixels are on their way. */
static TARGET void NAME(sample_nearest)(const MmkGridMap *map, const float *grid, ptrdiff_t count, const float *planes,
                                        ptrdiff_t plane, ptrdiff_t channels, float *y, ptrdiff_t line) {
    const INTS width = OP(set1_epi32)((int32_t)map->width), height = OP(set1_epi32)((int32_t)map->height);
    FOR_EACH_VECTOR(p) {
        FLOATS u, v;
        NAME(read_positions)(map, grid + 2 * p, &u, &v);
        const INTS column = ROUND(u), row = ROUND(v), index = NAME(index)(map, row, column);
        const MASK live = BOTH(IS_BELOW(column, width), IS_BELOW(row, height));
        for (ptrdiff_t c = 0; c < channels; c++)
            OP(storeu_ps)(y + c * line + p, GATHER(planes + c * plane, index, live));
    }
}

static TARGET void NAME(locate_nearest)(const MmkGridMap *map, const float *grid, ptrdiff_t count, int32_t *pixels) {
    const INTS width = OP(set1_epi32)((int32_t)map->width), height = OP(set1_epi32)((int32_t)map->height);
    FOR_EACH_VECTOR(p) {
        FLOATS x, y;
        NAME(read_positions)(map, grid + 2 * p, &x, &y);
        const INTS column = ROUND(x), row = ROUND(y);
        const MASK live = BOTH(IS_BELOW(column, width), IS_BELOW(row, height));
        STORE_INTS(pixels + p, INTS_OR_MINUS_ONE(live, NAME(index)(map, row, column)));
    }
}

static TARGET void NAME(locate_bilinear)(const MmkGridMap *map, const float *grid, ptrdiff_t count, int32_t *pixels,
                                         float *weights, ptrdiff_t line) {
    const INTS width = OP(set1_epi32)((int32_t)map->width), height = OP(set1_epi32)((int32_t)map->height);
    const INTS next = OP(set1_epi32)(1);
    const FLOATS one = OP(set1_ps)(1);
    FOR_EACH_VECTOR(p) {
        FLOATS x, y;
        NAME(read_positions)(map, grid + 2 * p, &x, &y);
        const FLOATS column = FLOOR(x), row = FLOOR(y);
        const FLOATS left = OP(sub_ps)(OP(add_ps)(column, one), x), right = OP(sub_ps)(x, column);
        const FLOATS upper = OP(sub_ps)(OP(add_ps)(row, one), y), lower = OP(sub_ps)(y, row);
        const INTS i = OP(cvttps_epi32)(column), j = OP(cvttps_epi32)(row);
        const MASK at_left = IS_BELOW(i, width), at_right = IS_BELOW(OP(add_epi32)(i, next), width);
        const MASK above = IS_BELOW(j, height), below = IS_BELOW(OP(add_epi32)(j, next), height);
        OP(storeu_ps)(weights + p, FLOATS_OR_MINUS_ONE(BOTH(at_left, above), OP(mul_ps)(left, upper)));
        OP(storeu_ps)(weights + line + p, FLOATS_OR_MINUS_ONE(BOTH(at_right, above), OP(mul_ps)(right, upper)));
        OP(storeu_ps)(weights + 2 * line + p, FLOATS_OR_MINUS_ONE(BOTH(at_left, below), OP(mul_ps)(left, lower)));
        OP(storeu_ps)(weights + 3 * line + p, FLOATS_OR_MINUS_ONE(BOTH(at_right, below), OP(mul_ps)(right, lower)));
        STORE_INTS(pixels + p, NAME(index)(map, j, i));
    }
}

static TARGET void NAME(gather_nearest)(const float *plane, const int32_t *pixels, ptrdiff_t count, float *y) {
    FOR_EACH_VECTOR(p) {
        const INTS index = LOAD_INTS(pixels + p);
        OP(storeu_ps)(y + p, GATHER(plane, index, IS_INDEX(index)));
    }
}

static TARGET void NAME(gather_bilinear)(const float *plane, int32_t right, int32_t below, const int32_t *pixels,
                                         const float *weights, ptrdiff_t line, ptrdiff_t count, float *y) {
    const int32_t steps[] = {0, right, below, right + below};
    FOR_EACH_VECTOR(p) {
        const INTS index = LOAD_INTS(pixels + p);
        FLOATS sum = OP(setzero_ps)();
        for (int corner = 0; corner < 4; corner++) {
            const FLOATS weight = OP(loadu_ps)(weights + corner * line + p);
            const MASK live = COMPARE(weight, OP(setzero_ps)(), _CMP_GE_OQ);
            const INTS pixel = OP(add_epi32)(index, OP(set1_epi32)(steps[corner]));
            sum = OP(add_ps)(sum, OP(mul_ps)(GATHER(plane, pixel, live), weight));
        }
        OP(storeu_ps)(y + p, sum);
    }
}
#undef FOR_EACH_VECTOR
