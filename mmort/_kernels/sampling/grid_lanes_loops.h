/* grid_lanes_loops.h - the functions of grid_lanes.h, for vectors of WIDTH numbers.
 *
 * `count` is at least WIDTH; the last vector ends with the last position, and may begin in the vector before it. */
#define FOR_EACH_VECTOR(p) \
    for (ptrdiff_t p = 0; p < count; p = p + WIDTH < count && p + 2 * WIDTH > count ? count - WIDTH : p + WIDTH)

/* Maps WIDTH coordinates to pixels, clamped; NaN becomes the last. */
static inline TARGET FLOATS NAME(to_pixels)(FLOATS coordinates, const MmkGridMap *map, const MmkGridAxis *axis) {
    const FLOATS factored = OP(mul_ps)(OP(add_ps)(coordinates, OP(set1_ps)(1)), OP(set1_ps)(axis->factor));
    FLOATS u = OP(sub_ps)(factored, OP(set1_ps)(map->shift));
    if (axis->span > 0) {
        const FLOATS low = OP(set1_ps)(axis->low), span = OP(set1_ps)(axis->span), zero = OP(setzero_ps)();
        const FLOATS offset = OP(sub_ps)(u, low), distance = OP(max_ps)(offset, OP(sub_ps)(zero, offset));
        FLOATS rest = distance;
        if (ANY(COMPARE(distance, span, _CMP_NLT_UQ))) {
            const INTS turns = OP(cvttps_epi32)(OP(div_ps)(distance, span));
            rest = OP(sub_ps)(distance, OP(mul_ps)(OP(cvtepi32_ps)(turns), span));
            const MASK rounded_up = COMPARE(rest, zero, _CMP_LT_OQ);
            rest = CHOOSE_FLOATS(rounded_up, OP(add_ps)(rest, span), rest);
            rest = CHOOSE_FLOATS(IS_ODD(turns), OP(sub_ps)(span, rest), rest);
        }
        u = OP(add_ps)(rest, low);
    }
    return OP(min_ps)(OP(max_ps)(OP(set1_ps)(axis->first), u), OP(set1_ps)(axis->last));
}

/* Reads WIDTH positions and maps them to pixels. */
static inline TARGET void NAME(read_positions)(const MmkGridMap *map, const float *grid, FLOATS *x, FLOATS *y) {
    const FLOATS first = OP(loadu_ps)(grid), second = OP(loadu_ps)(grid + WIDTH);
    *x = NAME(to_pixels)(EVEN(first, second), map, &map->x);
    *y = NAME(to_pixels)(ODD(first, second), map, &map->y);
}

static inline TARGET INTS NAME(index)(const MmkGridMap *map, INTS row, INTS column) {
    if (map->step > 1) column = OP(mullo_epi32)(column, OP(set1_epi32)(map->step));
    return OP(add_epi32)(OP(mullo_epi32)(row, OP(set1_epi32)(map->stride)), column);
}

/* Located and gathered at once, so that one vector is located while the last one's pixels are on their way. */
static TARGET void NAME(sample_nearest)(const MmkGridMap *shared, const float *grid, ptrdiff_t count,
                                        const MmkPlanes *shared_planes) {
    const MmkGridMap map = *shared; /* stays in registers while results are stored */
    const MmkPlanes planes = *shared_planes;
    const INTS width = OP(set1_epi32)((int32_t)map.x.size), height = OP(set1_epi32)((int32_t)map.y.size);
    FOR_EACH_VECTOR(p) {
        FLOATS x, y;
        NAME(read_positions)(&map, grid + 2 * p, &x, &y);
        const INTS column = ROUND(x), row = ROUND(y), index = NAME(index)(&map, row, column);
        const MASK live = BOTH(IS_BELOW(column, width), IS_BELOW(row, height));
        for (ptrdiff_t k = 0; k < planes.count; k++)
            OP(storeu_ps)(planes.y + k * planes.line + p, GATHER(planes.x + k * planes.size, index, live));
    }
}

/* Finds two neighbouring pixels on an axis, the first at most `last`, and their weights; -1: must not be read. */
static inline TARGET INTS NAME(neighbours)(FLOATS x, INTS last, FLOATS *first_weight, FLOATS *second_weight) {
    const FLOATS one = OP(set1_ps)(1), unread = OP(set1_ps)(-1), whole = FLOOR(x);
    const FLOATS before = OP(sub_ps)(OP(add_ps)(whole, one), x), after = OP(sub_ps)(x, whole);
    const INTS next = OP(set1_epi32)(1), pixel = OP(cvttps_epi32)(whole);
    const INTS first = OP(min_epi32)(OP(max_epi32)(pixel, NO_INTS), last);
    const MASK is_pixel = IS_EQUAL(first, pixel);
    const FLOATS first_of_next = CHOOSE_FLOATS(IS_EQUAL(first, OP(add_epi32)(pixel, next)), after, unread);
    const FLOATS second_is_pixel = CHOOSE_FLOATS(IS_EQUAL(OP(add_epi32)(first, next), pixel), before, unread);
    *first_weight = CHOOSE_FLOATS(is_pixel, before, first_of_next);
    *second_weight = CHOOSE_FLOATS(is_pixel, after, second_is_pixel);
    return first;
}

static inline TARGET FLOATS NAME(product)(FLOATS a, FLOATS b) {
    const MASK is_read = COMPARE(OP(min_ps)(a, b), OP(setzero_ps)(), _CMP_GE_OQ);
    return CHOOSE_FLOATS(is_read, OP(mul_ps)(a, b), OP(set1_ps)(-1));
}

/* Returns the upper left pixels of WIDTH positions, and the weights of all four. */
static inline TARGET INTS NAME(locate)(const MmkGridMap *map, const float *grid, FLOATS *weight) {
    const int32_t width = (int32_t)map->x.size, height = (int32_t)map->y.size;
    FLOATS x, y, left, right, upper, lower;
    NAME(read_positions)(map, grid, &x, &y);
    const INTS column = NAME(neighbours)(x, OP(set1_epi32)(width - 2), &left, &right);
    const INTS row = NAME(neighbours)(y, OP(set1_epi32)(height > 1 ? height - 2 : 0), &upper, &lower);
    if (height == 1) lower = OP(set1_ps)(-1);
    weight[0] = NAME(product)(left, upper);
    weight[1] = NAME(product)(right, upper);
    weight[2] = NAME(product)(left, lower);
    weight[3] = NAME(product)(right, lower);
    return NAME(index)(map, row, column);
}

static inline TARGET FLOATS NAME(add)(FLOATS sum, FLOATS values, FLOATS weight) {
    const FLOATS zero = OP(setzero_ps)();
    const FLOATS read = CHOOSE_FLOATS(COMPARE(weight, zero, _CMP_GE_OQ), values, zero);
    return OP(add_ps)(sum, OP(mul_ps)(read, weight));
}

/* Samples one plane after another; a pixel and the one to its right are gathered as one number of 64 bits. */
static inline TARGET void NAME(read_bilinear)(const MmkPlanes *planes, ptrdiff_t below, INTS index,
                                              const FLOATS *weight, ptrdiff_t p) {
    for (ptrdiff_t k = 0; k < planes->count; k++) {
        FLOATS sum = OP(setzero_ps)();
        for (int row = 0; row < 2; row++) {
            const void *pairs = planes->x + k * planes->size + row * below;
            const FLOATS first = GATHER_PAIRS(pairs, LOWER_INTS(index)),
                         second = GATHER_PAIRS(pairs, UPPER_INTS(index));
            sum = NAME(add)(sum, EVEN(first, second), weight[2 * row]);
            sum = NAME(add)(sum, ODD(first, second), weight[2 * row + 1]);
        }
        OP(storeu_ps)(planes->y + k * planes->line + p, sum);
    }
}

static TARGET void NAME(sample_bilinear)(const MmkGridMap *shared, ptrdiff_t below, const float *grid, ptrdiff_t count,
                                         const MmkPlanes *shared_planes) {
    const MmkGridMap map = *shared;
    const MmkPlanes planes = *shared_planes;
    FOR_EACH_VECTOR(p) {
        FLOATS weight[4];
        const INTS index = NAME(locate)(&map, grid + 2 * p, weight);
        NAME(read_bilinear)(&planes, below, index, weight, p);
    }
}

static TARGET void NAME(locate_bilinear)(const MmkGridMap *shared, const float *grid, ptrdiff_t count, int32_t *pixels,
                                         float *weights, ptrdiff_t line) {
    const MmkGridMap map = *shared;
    FOR_EACH_VECTOR(p) {
        FLOATS weight[4];
        STORE_INTS(pixels + p, NAME(locate)(&map, grid + 2 * p, weight));
        for (int tap = 0; tap < 4; tap++) OP(storeu_ps)(weights + tap * line + p, weight[tap]);
    }
}

static TARGET void NAME(gather_bilinear)(const MmkPlanes *shared, ptrdiff_t below, const int32_t *pixels,
                                         const float *weights, ptrdiff_t line, ptrdiff_t count) {
    const MmkPlanes planes = *shared;
    FOR_EACH_VECTOR(p) {
        FLOATS weight[4];
        for (int tap = 0; tap < 4; tap++) weight[tap] = OP(loadu_ps)(weights + tap * line + p);
        NAME(read_bilinear)(&planes, below, LOAD_INTS(pixels + p), weight, p);
    }
}

/* Averages the samples of the bins of one plane or two: the first of all bins, then the second, and so on.  A sample's
 * code is 4 times the pixel of its first tap, plus 1 if others are right of it, plus 2 if others are below it; -3:
 * outside the map. */
static inline __attribute__((always_inline)) TARGET void NAME(sum_samples_of)(
    const int planes, const float *plane, ptrdiff_t size, int32_t width, const int32_t *codes, const float *weights,
    ptrdiff_t samples, ptrdiff_t count, float divisor, float *y) {
    const INTS one = OP(set1_epi32)(1), row = OP(set1_epi32)(width);
    const FLOATS zero = OP(setzero_ps)();
    FOR_EACH_VECTOR(p) {
        FLOATS sum[2] = {zero, zero};
        for (ptrdiff_t s = 0; s < samples; s++) {
            const INTS code = LOAD_INTS(codes + s * count + p), right = BOTH_INTS(code, one);
            const MASK is_on_map = IS_INDEX(code), has_right = IS_EQUAL(right, one);
            const INTS below = OP(mullo_epi32)(BOTH_INTS(OP(srli_epi32)(code, 1), one), row);
            /* In the last column, both taps are the second pixel of a pair. */
            const INTS pixel = OP(add_epi32)(OP(srai_epi32)(code, 2), OP(sub_epi32)(right, one));
            INTS pair = OP(max_epi32)(pixel, NO_INTS);
            for (int tap = 0; tap < 4; tap += 2) {
                const FLOATS weight = OP(loadu_ps)(weights + (4 * s + tap) * count + p);
                const FLOATS next_weight = OP(loadu_ps)(weights + (4 * s + tap + 1) * count + p);
                for (int k = 0; k < planes; k++) {
                    const FLOATS first = GATHER_PAIRS(plane + k * size, LOWER_INTS(pair)),
                                 second = GATHER_PAIRS(plane + k * size, UPPER_INTS(pair));
                    const FLOATS last = CHOOSE_FLOATS(is_on_map, ODD(first, second), zero);
                    const FLOATS earlier = CHOOSE_FLOATS(is_on_map, EVEN(first, second), zero);
                    sum[k] = OP(add_ps)(sum[k], OP(mul_ps)(weight, CHOOSE_FLOATS(has_right, earlier, last)));
                    sum[k] = OP(add_ps)(sum[k], OP(mul_ps)(next_weight, last));
                }
                pair = OP(add_epi32)(pair, below);
            }
        }
        for (int k = 0; k < planes; k++) OP(storeu_ps)(y + k * count + p, OP(div_ps)(sum[k], OP(set1_ps)(divisor)));
    }
}

static TARGET void NAME(sum_samples)(const MmkPlanes *planes, int32_t width, const int32_t *codes, const float *weights,
                                     ptrdiff_t samples, float divisor) {
    for (ptrdiff_t k = 0; k < planes->count; k += 2) {
        const float *plane = planes->x + k * planes->size;
        float *y = planes->y + k * planes->line;
        if (k + 1 < planes->count)
            NAME(sum_samples_of)(2, plane, planes->size, width, codes, weights, samples, planes->line, divisor, y);
        else
            NAME(sum_samples_of)(1, plane, planes->size, width, codes, weights, samples, planes->line, divisor, y);
    }
}

/* Adds the taps to `vectors` vectors of sums at a time, as long as there are so many. */
static inline __attribute__((always_inline)) TARGET ptrdiff_t NAME(add_taps_to)(const int vectors, const float *pixels,
                                                                                const ptrdiff_t *offset,
                                                                                const float *weight, ptrdiff_t taps,
                                                                                ptrdiff_t c, ptrdiff_t channels,
                                                                                float *sums) {
    FLOATS sum[4];
    for (; c + vectors * WIDTH <= channels; c += vectors * WIDTH) {
        for (int i = 0; i < vectors; i++) sum[i] = OP(loadu_ps)(sums + c + i * WIDTH);
        for (ptrdiff_t t = 0; t < taps; t++) {
            const FLOATS factor = OP(set1_ps)(weight[t]);
            const float *pixel = pixels + offset[t] + c;
            for (int i = 0; i < vectors; i++)
                sum[i] = OP(add_ps)(sum[i], OP(mul_ps)(factor, OP(loadu_ps)(pixel + i * WIDTH)));
        }
        for (int i = 0; i < vectors; i++) OP(storeu_ps)(sums + c + i * WIDTH, sum[i]);
    }
    return c;
}

static TARGET void NAME(add_taps)(const float *pixels, const ptrdiff_t *offset, const float *weight, ptrdiff_t taps,
                                  ptrdiff_t channels, float *sums) {
    const ptrdiff_t done = NAME(add_taps_to)(4, pixels, offset, weight, taps, 0, channels, sums);
    NAME(add_taps_to)(1, pixels, offset, weight, taps, done, channels, sums);
}
#undef FOR_EACH_VECTOR
