/* deform_product_loops.h - the loops of deform_product.c, which includes this file for each element type and
 * instruction set.
 *
 * NAME(x) names what is defined here; REAL is float or double; VECTOR is the size of a vector register in bytes; ROWS
 * positions and PANELS panels are summed at a time, which follows from the number of registers; TARGET is the
 * instruction set's attribute. */
#if defined(__GNUC__)
typedef REAL NAME(vector) __attribute__((vector_size(VECTOR), may_alias));
#else
typedef struct {
    REAL lane[VECTOR / sizeof(REAL)];
} NAME(vector);
#endif

TARGET static inline void NAME(multiply_add)(NAME(vector) * sum, const NAME(vector) * weights, REAL column) {
#if defined(__GNUC__)
    *sum += *weights * column;
#else
    for (size_t i = 0; i < VECTOR / sizeof(REAL); i++) sum->lane[i] += weights->lane[i] * column;
#endif
}

/* Adds the products of ROWS positions and `panels` panels, a constant. */
TARGET INLINE void NAME(add)(const mmk_product_shape *shape, int panels, const REAL *columns, const REAL *weights,
                             REAL *sums) {
    enum { PARTS = MMK_PANEL / VECTOR, LANES = VECTOR / sizeof(REAL) };
    const ptrdiff_t taps = shape->taps, position = shape->position, tap = shape->tap, panel = shape->panel;
    const int vectors = panels * PARTS;
    NAME(vector) sum[ROWS][PANELS * PARTS];
    UNROLL for (int row = 0; row < ROWS; row++) UNROLL for (int v = 0; v < vectors; v++) sum[row][v] =
        *(const NAME(vector) *)(sums + row * shape->sums + v * LANES);
    for (ptrdiff_t channel = 0; channel < shape->channels; channel++) {
        const REAL *column = columns + channel;
        for (ptrdiff_t t = 0; t < taps; t++) {
            UNROLL for (int row = 0; row < ROWS; row++) UNROLL for (int v = 0; v < vectors; v++) NAME(multiply_add)(
                &sum[row][v], (const NAME(vector) *)(weights + v / PARTS * panel + v % PARTS * LANES),
                column[row * position]);
            column += tap;
            weights += PARTS * LANES;
        }
        weights += shape->weight_skip;
    }
    UNROLL for (int row = 0; row < ROWS; row++) UNROLL for (int v = 0; v < vectors; v++) *
        (NAME(vector) *)(sums + row * shape->sums + v * LANES) = sum[row][v];
}

TARGET static void NAME(product)(const mmk_product_shape *shape, const REAL *columns, const REAL *weights, REAL *sums) {
    enum { LANES = MMK_PANEL / sizeof(REAL) };
    ptrdiff_t panel = 0;
    for (; panel + PANELS <= shape->panels; panel += PANELS)
        for (ptrdiff_t position = 0; position < shape->positions; position += ROWS)
            NAME(add)(shape, PANELS, columns + position * shape->position, weights + panel * shape->panel,
                      sums + position * shape->sums + panel * LANES);
    if (panel < shape->panels)
        for (ptrdiff_t position = 0; position < shape->positions; position += ROWS)
            NAME(add)(shape, 1, columns + position * shape->position, weights + panel * shape->panel,
                      sums + position * shape->sums + panel * LANES);
}
#undef NAME
#undef REAL
