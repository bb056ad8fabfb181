/* kernels.h - the kernels of this library. */
#define MMK_OPERATORS(X) X(group_norm)
