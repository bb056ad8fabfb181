/* operators.c - the operators of this library, one row each. */
#include "operators.h"

const OperatorRow operator_rows[] = {
    {.kernel = "group_norm",
     .type = "GroupNorm",
     .domains = {"example"},
     .inputs = {{"x", "[N, C, ...]", MMK_FLOAT32}, {"scale", "[C]", MMK_FLOAT32}, {"bias", "[C]", MMK_FLOAT32}},
     .outputs = {{"output", "[...]", MMK_FLOAT32}},
     .attributes = {REQUIRED_INT("num_groups"), FLOAT("epsilon", 1e-5)}},

    {.kernel = NULL},
};
