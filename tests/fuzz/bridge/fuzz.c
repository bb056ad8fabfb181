/* fuzz.c - libFuzzer's entry: any bytes are a case that the bridge runs or refuses, and nothing is leaked. */
#include "case.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Case given;
    OrtKernelContext context;
    if (!fake_op_count && fake_register()) __builtin_trap();
    if (!read_case(data, size, &given)) return -1; /* not worth keeping */
    run_case(&given, &context);
    free_outputs(&context);
    free_case(&given);
    return 0;
}
