/* region_lanes_loops.h - the functions of region_lanes.h, for vectors of WIDTH numbers. */

/* Sets to[i * stride + j] to from[steps[j] + i], for i and j below WIDTH. */
static inline TARGET void NAME(transpose_block)(const float *from, const ptrdiff_t *steps, float *to,
                                                ptrdiff_t stride) {
    for (int i = 0; i < WIDTH; i += 4, from += 4, to += 4 * stride) {
        const FLOATS row0 = LOAD_QUADS(from, steps), row1 = LOAD_QUADS(from, steps + 1);
        const FLOATS row2 = LOAD_QUADS(from, steps + 2), row3 = LOAD_QUADS(from, steps + 3);
        const FLOATS low01 = OP(unpacklo_ps)(row0, row1), high01 = OP(unpackhi_ps)(row0, row1);
        const FLOATS low23 = OP(unpacklo_ps)(row2, row3), high23 = OP(unpackhi_ps)(row2, row3);
        OP(storeu_ps)(to, OP(shuffle_ps)(low01, low23, _MM_SHUFFLE(1, 0, 1, 0)));
        OP(storeu_ps)(to + stride, OP(shuffle_ps)(low01, low23, _MM_SHUFFLE(3, 2, 3, 2)));
        OP(storeu_ps)(to + 2 * stride, OP(shuffle_ps)(high01, high23, _MM_SHUFFLE(1, 0, 1, 0)));
        OP(storeu_ps)(to + 3 * stride, OP(shuffle_ps)(high01, high23, _MM_SHUFFLE(3, 2, 3, 2)));
    }
}

static inline TARGET void NAME(transpose)(const float *from, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns,
                                          float *to, ptrdiff_t line) {
    ptrdiff_t steps[WIDTH];
    for (int j = 0; j < WIDTH; j++) steps[j] = j * stride;
    for (ptrdiff_t i = 0; i < columns; i += WIDTH) {
        if (i > columns - WIDTH) i = columns - WIDTH; /* the last block may overlap the one before */
        for (ptrdiff_t j = 0; j < rows; j += WIDTH) {
            if (j > rows - WIDTH) j = rows - WIDTH;
            NAME(transpose_block)(from + j * stride + i, steps, to + i * line + j, line);
        }
    }
}

static inline TARGET void NAME(copy_pixels)(const float *planes, const ptrdiff_t *steps, ptrdiff_t count,
                                            ptrdiff_t lanes, float *tile) {
    for (ptrdiff_t first = 0; count >= WIDTH && first < count; first += WIDTH) {
        if (first > count - WIDTH) first = count - WIDTH; /* the last block may overlap the one before */
        for (ptrdiff_t lane = 0; lane < lanes; lane += WIDTH)
            NAME(transpose_block)(planes + first, steps + lane, tile + first * lanes + lane, lanes);
    }
    for (ptrdiff_t pixel = 0; count < WIDTH && pixel < count; pixel++)
        for (ptrdiff_t lane = 0; lane < lanes; lane++) tile[pixel * lanes + lane] = planes[steps[lane] + pixel];
}

/* ---- means ------------------------------------------------------------------------------------------------------- */

/* Returns a sample of WIDTH channels: pixels side by side in two rows, weighted and added in this order. */
static inline TARGET FLOATS NAME(blend)(const float *top_left, const float *top_right, const float *bottom_left,
                                        const float *bottom_right, FLOATS a, FLOATS b, FLOATS c, FLOATS d) {
    const FLOATS top = OP(add_ps)(OP(mul_ps)(a, OP(loadu_ps)(top_left)), OP(mul_ps)(b, OP(loadu_ps)(top_right)));
    return OP(add_ps)(OP(add_ps)(top, OP(mul_ps)(c, OP(loadu_ps)(bottom_left))),
                      OP(mul_ps)(d, OP(loadu_ps)(bottom_right)));
}

/* Adds to a row of bins the samples between two rows of pixels; after the last of them, as `last` says, multiplies or
 * divides the sums.  A function of its own, because gcc 12 keeps the pointers of its loop in registers only then. */
__attribute__((noinline)) static TARGET void NAME(add_row)(const float *top, const float *bottom,
                                                           const MmkTaps *columns, const float *top_weight,
                                                           const float *bottom_weight, int last, FLOATS factor,
                                                           float *bins) {
    const ptrdiff_t *begin = columns->begin, *const end = begin + columns->bins, *const tap = columns->tap;
    ptrdiff_t u = 0;
    for (; begin < end; begin++, bins += 2 * WIDTH) {
        FLOATS first = OP(loadu_ps)(bins), second = OP(loadu_ps)(bins + WIDTH);
        for (; u < begin[1]; u += 2) {
            const FLOATS a = OP(set1_ps)(top_weight[u]), b = OP(set1_ps)(top_weight[u + 1]);
            const FLOATS c = OP(set1_ps)(bottom_weight[u]), d = OP(set1_ps)(bottom_weight[u + 1]);
            const ptrdiff_t left = tap[u], right = tap[u + 1];
            first = OP(add_ps)(first, NAME(blend)(top + left, top + right, bottom + left, bottom + right, a, b, c, d));
            second = OP(add_ps)(second, NAME(blend)(top + left + WIDTH, top + right + WIDTH, bottom + left + WIDTH,
                                                    bottom + right + WIDTH, a, b, c, d));
        }
        if (last == MULTIPLY) {
            first = OP(mul_ps)(first, factor);
            second = OP(mul_ps)(second, factor);
        } else if (last == DIVIDE) {
            first = OP(div_ps)(first, factor);
            second = OP(div_ps)(second, factor);
        }
        OP(storeu_ps)(bins, first);
        OP(storeu_ps)(bins + WIDTH, second);
    }
}

static inline TARGET void NAME(average_bins)(const float *tile, const MmkSamples *samples, float *products, float *bins,
                                             const MmkBlock *next) {
    const MmkTaps *rows = &samples->rows, *columns = &samples->columns;
    const ptrdiff_t taps = columns->begin[columns->bins], size = columns->bins * 2 * WIDTH;
    float *const below = products + (taps + WIDTH - 1) / WIDTH * WIDTH;
    const int multiplies = has_exact_reciprocal(samples->count);
    const FLOATS factor = OP(set1_ps)(multiplies ? 1 / samples->count : samples->count);
    for (ptrdiff_t row = 0; row < rows->bins; row++, bins += size) {
        fetch_part(next, row, rows->bins);
        for (ptrdiff_t i = 0; i < size; i += WIDTH) OP(storeu_ps)(bins + i, OP(setzero_ps)());
        for (ptrdiff_t t = rows->begin[row]; t < rows->begin[row + 1]; t += 2) {
            const FLOATS a = OP(set1_ps)(rows->weight[t]), b = OP(set1_ps)(rows->weight[t + 1]);
            for (ptrdiff_t u = 0; u < taps; u += WIDTH) {
                OP(storeu_ps)(products + u, OP(mul_ps)(a, OP(loadu_ps)(columns->weight + u)));
                OP(storeu_ps)(below + u, OP(mul_ps)(b, OP(loadu_ps)(columns->weight + u)));
            }
            const int last = t + 2 < rows->begin[row + 1] ? NOT_LAST : multiplies ? MULTIPLY : DIVIDE;
            NAME(add_row)(tile + rows->tap[t], tile + rows->tap[t + 1], columns, products, below, last, factor, bins);
        }
    }
}
