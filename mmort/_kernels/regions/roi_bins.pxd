"""roi_align: the mean or the maximum of each bin's samples, for the channels of a tile."""
from libc.math cimport INFINITY

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions.region_tiles cimport VECTOR
from mmort._kernels.regions.roi_axis cimport Axis


cdef inline simd_void average_bins(const real *tile, const Axis *rows, const Axis *columns, real samples,
                                   real *bins) noexcept nogil:
    """Sets bins[row][column][channel] to the mean of the samples."""
    cdef real[VECTOR] total
    cdef const real *row_weight = <const real *>rows.weight
    cdef const real *column_weight = <const real *>columns.weight
    cdef const real *top
    cdef const real *bottom
    cdef real top_left, top_right, bottom_left, bottom_right
    cdef ptrdiff_t b, x, t, u, left, right, c
    for b in range(rows.bins):
        for x in range(columns.bins):
            for c in range(VECTOR):
                total[c] = 0
            for t in range(rows.begin[b], rows.begin[b + 1], 2):
                top = tile + rows.tap[t]
                bottom = tile + rows.tap[t + 1]
                for u in range(columns.begin[x], columns.begin[x + 1], 2):
                    left = columns.tap[u]
                    right = columns.tap[u + 1]
                    top_left = row_weight[t] * column_weight[u]
                    top_right = row_weight[t] * column_weight[u + 1]
                    bottom_left = row_weight[t + 1] * column_weight[u]
                    bottom_right = row_weight[t + 1] * column_weight[u + 1]
                    for c in range(VECTOR):
                        total[c] += (((top_left * top[left + c] + top_right * top[right + c])
                                      + bottom_left * bottom[left + c]) + bottom_right * bottom[right + c])
            for c in range(VECTOR):
                bins[c] = total[c] / samples
            bins += VECTOR


cdef inline simd_void maximize_bins(const real *tile, const Axis *rows, const Axis *columns, ptrdiff_t lanes,
                                    real *bins) noexcept nogil:
    """Sets bins[row][column][channel] to the largest sample: NaN if any is, and at least 0 if any is outside."""
    # `lanes` is VECTOR, but gcc 12 would unroll a loop of known length before it could vectorise the choice
    cdef real[VECTOR] largest
    cdef const real *row_weight = <const real *>rows.weight
    cdef const real *column_weight = <const real *>columns.weight
    cdef const real *top
    cdef const real *bottom
    cdef real top_left, top_right, bottom_left, bottom_right, value
    cdef ptrdiff_t b, x, t, u, left, right, c
    for b in range(rows.bins):
        for x in range(columns.bins):
            for c in range(lanes):
                largest[c] = 0 if rows.outside[b] or columns.outside[x] else -INFINITY
            for t in range(rows.begin[b], rows.begin[b + 1], 2):
                top = tile + rows.tap[t]
                bottom = tile + rows.tap[t + 1]
                for u in range(columns.begin[x], columns.begin[x + 1], 2):
                    left = columns.tap[u]
                    right = columns.tap[u + 1]
                    top_left = row_weight[t] * column_weight[u]
                    top_right = row_weight[t] * column_weight[u + 1]
                    bottom_left = row_weight[t + 1] * column_weight[u]
                    bottom_right = row_weight[t + 1] * column_weight[u + 1]
                    for c in range(lanes):
                        value = (((top_left * top[left + c] + top_right * top[right + c])
                                  + bottom_left * bottom[left + c]) + bottom_right * bottom[right + c])
                        largest[c] = value if (largest[c] < value) | (value != value) else largest[c]
            for c in range(lanes):
                bins[c] = largest[c]
            bins += VECTOR
