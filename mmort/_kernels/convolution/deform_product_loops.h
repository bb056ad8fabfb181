/* deform_product_loops.h - the loops of deform_product.c, which includes this file for each element type and
 * instruction set.
 *
 * NAME(x) names what is defined here; REAL is float or double; VECTOR is the size of a vector register in bytes; ROWS
 * positions, or the last FEW_ROWS, and PANELS panels are summed at a time, which follows from the number of registers;
 * TARGET is the instruction set's attribute. */
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

/* Adds the products of `rows` positions and `panels` panels, both constant. */
TARGET INLINE void NAME(add)(const mmk_product_shape *shape, int rows, int panels, const REAL *columns,
                             const REAL *weights, REAL *sums) {
    enum { PARTS = MMK_PANEL / VECTOR, LANES = VECTOR / sizeof(REAL) };
    const ptrdiff_t taps = shape->taps, position = shape->position, tap = shape->tap, panel = shape->panel;
    const int vectors = panels * PARTS;
    NAME(vector) sum[ROWS][PANELS * PARTS];
    UNROLL for (int row = 0; row < rows; row++) UNROLL for (int v = 0; v < vectors; v++) sum[row][v] =
        *(const NAME(vector) *)(sums + row * shape->sums + v * LANES);
    for (ptrdiff_t channel = 0; channel < shape->channels; channel++) {
        const REAL *column = columns + channel;
        for (ptrdiff_t t = 0; t < taps; t++) {
            UNROLL for (int row = 0; row < rows; row++) UNROLL for (int v = 0; v < vectors; v++) NAME(multiply_add)(
                &sum[row][v], (const NAME(vector) *)(weights + v / PARTS * panel + v % PARTS * LANES),
                column[row * position]);
            column += tap;
            weights += PARTS * LANES;
        }
        weights += shape->weight_skip;
    }
    UNROLL for (int row = 0; row < rows; row++) UNROLL for (int v = 0; v < vectors; v++) *
        (NAME(vector) *)(sums + row * shape->sums + v * LANES) = sum[row][v];
}

/* Adds the products of all positions and `panels` panels, a constant. */
TARGET INLINE void NAME(add_positions)(const mmk_product_shape *shape, int panels, const REAL *columns,
                                       const REAL *weights, REAL *sums) {
    ptrdiff_t position = 0;
    for (; position + ROWS <= shape->positions; position += ROWS)
        NAME(add)(shape, ROWS, panels, columns + position * shape->position, weights, sums + position * shape->sums);
    for (; position < shape->positions; position += FEW_ROWS)
        NAME(add)(shape, FEW_ROWS, panels, columns + position * shape->position, weights,
                  sums + position * shape->sums);
}

TARGET static void NAME(product)(const mmk_product_shape *shape, const REAL *columns, const REAL *weights, REAL *sums) {
    enum { LANES = MMK_PANEL / sizeof(REAL) };
    ptrdiff_t panel = 0;
    for (; panel + PANELS <= shape->panels; panel += PANELS)
        NAME(add_positions)(shape, PANELS, columns, weights + panel * shape->panel, sums + panel * LANES);
    if (panel < shape->panels)
        NAME(add_positions)(shape, 1, columns, weights + panel * shape->panel, sums + panel * LANES);
}
#undef NAME
#undef REAL
