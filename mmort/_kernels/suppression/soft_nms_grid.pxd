"""soft_nms: the boxes that overlap a box, by a grid.

Boxes are in the cells that they touch.  A pair may share many, but meets only in the one in the later of both first
columns and the later of both first lines.  So a cell has a bucket for boxes that begin in its column, one for those
that begin in its line, and so on, and only those are looked at that a box meets there.
"""
from libc.math cimport INFINITY, isfinite
from libc.stdint cimport int32_t, int64_t, uint32_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport area_of, intersection, iou_of
from mmort._kernels.shared.workspace cimport element_size, take

cdef enum:  # where a box begins; the order makes both that begin in the column neighbours, and both in the line
    IN_COLUMN
    IN_COLUMN_AND_LINE
    IN_LINE
    BEFORE
    BUCKETS_PER_CELL

cdef enum:
    MAX_CELLS_PER_BOX = 6  # on average
    LANES = 8  # entries that are compared at once
    SAMPLE = 64  # boxes that tell where nearly all are
    OUTLIERS = 16  # one in so many may be elsewhere


cdef struct _Range:
    int64_t first_column, last_column, first_line, last_line


cdef struct Grid:
    double min_x, min_y, cells_per_x, cells_per_y, margin
    int64_t columns, lines
    int64_t stride      # of the planes
    int64_t begin       # the boxes in the grid are those from here on
    int64_t end
    uint32_t *starts    # by bucket: its first entry
    uint32_t *ends      # the end of its remaining entries
    int64_t max_entries
    int32_t *entries    # boxes, by bucket
    void *corners       # planes of x1, y1, x2 and y2, by entry
    int32_t *hits       # boxes that overlap the one looked up
    void *ious          # by hit
    size_t size         # of the memory


cdef inline Grid soft_grid(int type, size_t n, size_t address) noexcept nogil:
    """Returns a grid of n boxes that has the memory at an address."""
    cdef Grid grid
    cdef size_t begin = address, width = element_size(type)
    grid.stride = n
    grid.starts = <uint32_t *>take(&address, BUCKETS_PER_CELL * n * sizeof(uint32_t))
    grid.ends = <uint32_t *>take(&address, BUCKETS_PER_CELL * n * sizeof(uint32_t))
    grid.max_entries = MAX_CELLS_PER_BOX * n + LANES
    grid.entries = <int32_t *>take(&address, grid.max_entries * sizeof(int32_t))
    grid.corners = take(&address, 4 * grid.max_entries * width)
    grid.hits = <int32_t *>take(&address, n * sizeof(int32_t))
    grid.ious = take(&address, n * width)
    grid.size = address - begin
    return grid


cdef inline int64_t _cell(double value, double start, double cells, int64_t count) noexcept nogil:
    return min(max(<int64_t>((value - start) * cells), 0), count - 1)


cdef inline _Range _touched(const Grid *grid, const real *planes, int64_t box) noexcept nogil:
    """Returns the cells of a box; with the margin, boxes overlap only if they share one."""
    cdef _Range cells
    cells.first_column = _cell(planes[box], grid.min_x, grid.cells_per_x, grid.columns)
    cells.first_line = _cell(planes[grid.stride + box], grid.min_y, grid.cells_per_y, grid.lines)
    cells.last_column = _cell(planes[2 * grid.stride + box] + grid.margin, grid.min_x, grid.cells_per_x, grid.columns)
    cells.last_line = _cell(planes[3 * grid.stride + box] + grid.margin, grid.min_y, grid.cells_per_y, grid.lines)
    return cells


cdef inline int64_t _bucket(const Grid *grid, const _Range *cells, int64_t column, int64_t line) noexcept nogil:
    cdef int kind
    if column == cells.first_column:
        kind = IN_COLUMN_AND_LINE if line == cells.first_line else IN_COLUMN
    else:
        kind = IN_LINE if line == cells.first_line else BEFORE
    return BUCKETS_PER_CELL * (line * grid.columns + column) + kind


cdef inline void _insert(double *sorted_values, int count, double value) noexcept nogil:
    while count and sorted_values[count - 1] > value:
        sorted_values[count] = sorted_values[count - 1]
        count -= 1
    sorted_values[count] = value


cdef inline void _find_bulk(const real *low, const real *high, int64_t begin, int64_t end, double *start,
                            double *stop) noexcept nogil:
    """Finds an interval that has the corners of nearly all of the boxes [begin, end), by a sample of them."""
    cdef double[SAMPLE] lows, highs
    cdef double part
    cdef int64_t size = min(<int64_t>SAMPLE, end - begin), i, box
    for i in range(size):
        box = begin + (end - begin) * i // size
        _insert(lows, <int>i, low[box])
        _insert(highs, <int>i, high[box])
    start[0] = lows[size // OUTLIERS]
    stop[0] = highs[size - 1 - size // OUTLIERS]
    part = (stop[0] - start[0]) / (OUTLIERS - 2)  # what the sample leaves out if boxes are spread evenly, and more
    start[0] -= 2 * part
    stop[0] += 2 * part


cdef inline bint choose_cells(Grid *grid, const real *planes, real offset) noexcept nogil:
    """Makes cells of about the mean box; returns False for odd boxes, whose IoU may be NaN without any overlap.

    The cells are where nearly all boxes are; the outer ones have all that is farther out.
    """
    cdef double width = 0, height = 0, max_x = -INFINITY, max_y = -INFINITY, start, stop
    cdef int64_t stride = grid.stride, count = grid.end - grid.begin, box, total
    cdef _Range cells
    grid.margin = offset * 1.000001  # rounding of a distance of less than the offset
    grid.min_x = grid.min_y = INFINITY
    for box in range(grid.begin, grid.end):
        if not (planes[box] < planes[2 * stride + box] + offset
                and planes[stride + box] < planes[3 * stride + box] + offset
                and planes[4 * stride + box] > 0 and isfinite(planes[4 * stride + box])):
            return False
        grid.min_x = min(grid.min_x, <double>planes[box])
        grid.min_y = min(grid.min_y, <double>planes[stride + box])
        max_x = max(max_x, <double>planes[2 * stride + box])
        max_y = max(max_y, <double>planes[3 * stride + box])
    _find_bulk(planes, planes + 2 * stride, grid.begin, grid.end, &start, &stop)
    grid.min_x = max(grid.min_x, start)
    max_x = min(max_x, stop)
    _find_bulk(planes + stride, planes + 3 * stride, grid.begin, grid.end, &start, &stop)
    grid.min_y = max(grid.min_y, start)
    max_y = min(max_y, stop)
    for box in range(grid.begin, grid.end):
        width += min(<double>planes[2 * stride + box] - planes[box], max_x - grid.min_x)
        height += min(<double>planes[3 * stride + box] - planes[stride + box], max_y - grid.min_y)
    width = width / count + grid.margin
    height = height / count + grid.margin
    if not (isfinite(count / (max_x - grid.min_x + grid.margin)) and isfinite(max_x - grid.min_x)
            and isfinite(count / (max_y - grid.min_y + grid.margin)) and isfinite(max_y - grid.min_y)):
        return False
    grid.columns = <int64_t>min((max_x - grid.min_x) / width + 1, <double>count)
    grid.lines = <int64_t>min((max_y - grid.min_y) / height + 1, <double>count)
    while True:
        grid.cells_per_x = grid.columns / (max_x - grid.min_x + grid.margin)
        grid.cells_per_y = grid.lines / (max_y - grid.min_y + grid.margin)
        if grid.columns * grid.lines <= count:
            total = 0
            for box in range(grid.begin, grid.end):
                cells = _touched(grid, planes, box)
                total += (cells.last_column - cells.first_column + 1) * (cells.last_line - cells.first_line + 1)
            if total <= MAX_CELLS_PER_BOX * count:
                return True
        grid.columns = (grid.columns + 1) // 2
        grid.lines = (grid.lines + 1) // 2


cdef inline void fill_cells(const Grid *grid, const real *planes) noexcept nogil:
    """Puts all boxes into their cells."""
    cdef int64_t buckets = BUCKETS_PER_CELL * grid.columns * grid.lines, box, bucket, column, line, k
    cdef int64_t stride = grid.max_entries
    cdef real *corners = <real *>grid.corners
    cdef uint32_t size, before = 0, entry
    cdef _Range cells
    for bucket in range(buckets):
        grid.ends[bucket] = 0
    for box in range(grid.begin, grid.end):
        cells = _touched(grid, planes, box)
        for line in range(cells.first_line, cells.last_line + 1):
            for column in range(cells.first_column, cells.last_column + 1):
                grid.ends[_bucket(grid, &cells, column, line)] += 1
    for bucket in range(buckets):
        size = grid.ends[bucket]
        grid.starts[bucket] = grid.ends[bucket] = before
        before += size
    for box in range(grid.begin, grid.end):
        cells = _touched(grid, planes, box)
        for line in range(cells.first_line, cells.last_line + 1):
            for column in range(cells.first_column, cells.last_column + 1):
                bucket = _bucket(grid, &cells, column, line)
                entry = grid.ends[bucket]
                grid.ends[bucket] += 1
                grid.entries[entry] = <int32_t>box
                for k in range(4):
                    corners[k * stride + entry] = planes[k * grid.stride + box]


cdef inline void remove_box(const Grid *grid, const real *planes, int64_t box) noexcept nogil:
    """Removes a box from its cells: the last entry of a bucket takes its place."""
    cdef _Range cells = _touched(grid, planes, box)
    cdef int64_t column, line, bucket, stride = grid.max_entries, k
    cdef real *corners = <real *>grid.corners
    cdef uint32_t entry, last
    for line in range(cells.first_line, cells.last_line + 1):
        for column in range(cells.first_column, cells.last_column + 1):
            bucket = _bucket(grid, &cells, column, line)
            entry = grid.starts[bucket]
            while grid.entries[entry] != box:
                entry += 1
            grid.ends[bucket] -= 1
            last = grid.ends[bucket]
            grid.entries[entry] = grid.entries[last]
            for k in range(4):
                corners[k * stride + entry] = corners[k * stride + last]


cdef inline simd_void find_hits(const Grid *grid, const real *planes, int64_t box, real offset, real min_iou,
                                ptrdiff_t *hits, int64_t *comparisons) noexcept nogil:
    """Finds the boxes that overlap `box` by an IoU of at least `min_iou`, each once."""
    cdef _Range cells = _touched(grid, planes, box)
    cdef ptrdiff_t stride = grid.max_entries, column, line, bucket, cell, first, last, begin, i, k, size
    cdef ptrdiff_t count = 0
    cdef real box_x1 = planes[box], box_y1 = planes[grid.stride + box]
    cdef real box_x2 = planes[2 * grid.stride + box], box_y2 = planes[3 * grid.stride + box]
    cdef real box_area = planes[4 * grid.stride + box]
    cdef real *ious = <real *>grid.ious
    cdef real[LANES] lane_ious
    cdef const real *x1
    cdef const real *y1
    cdef const real *x2
    cdef const real *y2
    for line in range(cells.first_line, cells.last_line + 1):
        for column in range(cells.first_column, cells.last_column + 1):
            cell = BUCKETS_PER_CELL * (line * grid.columns + column)
            first = cell + (IN_COLUMN if line == cells.first_line else IN_COLUMN_AND_LINE)
            last = cell + (IN_LINE if column == cells.first_column else IN_COLUMN_AND_LINE)
            if first == cell + IN_COLUMN and last == cell + IN_LINE:
                last = cell + BEFORE
            for bucket in range(first, last + 1):
                begin = grid.starts[bucket]
                size = grid.ends[bucket] - begin
                x1 = <const real *>grid.corners + begin
                y1 = x1 + stride
                x2 = y1 + stride
                y2 = x2 + stride
                i = 0
                while i < size:  # whole vectors; the last numbers may be of another bucket
                    for k in range(LANES):
                        lane_ious[k] = iou_of(
                            intersection(box_x1, box_y1, box_x2, box_y2, x1[i + k], y1[i + k], x2[i + k], y2[i + k],
                                         offset),
                            box_area, area_of(x1[i + k], y1[i + k], x2[i + k], y2[i + k], offset))
                    for k in range(LANES):
                        ious[count] = lane_ious[k]
                        grid.hits[count] = grid.entries[begin + i + k]
                        count += (lane_ious[k] >= min_iou) & (i + k < size)
                    i += LANES
                comparisons[0] += size
    hits[0] = count
