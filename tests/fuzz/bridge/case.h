/* case.h - a node, its inputs and what goes wrong, read from bytes that a fuzzer makes up.
 *
 * In order, little-endian, zeros behind the end:
 *
 *   u8 operator, u8 failing call of the API (0: none), u8 threads of ParallelFor
 *   for each attribute of the row: u8 kind (0 left out, 1 INT, 2 FLOAT, 3 STRING, 4 INTS, 5 FLOATS; +16: under its
 *       former name), then i64; f32; u8 length and text; u8 count and i64 ...; u8 count and f32 ...
 *   for each input: u8 state (0 left out), u8 rank, u16 sizes, u8 filling (0: bytes that follow, else pseudo-random
 *       numbers of that kind, from a u32) */
#ifndef FUZZ_CASE_H
#define FUZZ_CASE_H
#include "fake_ort.h"

typedef struct {
    const Op *op;
    OrtKernelInfo node;
    OrtValue *inputs[FAKE_MAX_TENSORS];
    int failing_call, threads;
} Case;

/* Reads a case; returns 0 if its tensors would be too large. */
int read_case(const uint8_t *data, size_t size, Case *given);
void free_case(Case *given);

/* Infers shapes, makes the node, and runs it on these inputs.  Returns its outputs in `context`, which the caller
 * frees with free_outputs, and 0; 1 if the bridge gave a status. */
int run_case(const Case *given, OrtKernelContext *context);
void free_outputs(OrtKernelContext *context);
#endif
