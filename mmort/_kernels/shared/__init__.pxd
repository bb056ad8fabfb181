"""What kernels of several folders use: sorting, cells of grids, memory, transposition."""
