/* fake_ort.h - as much of ONNX Runtime's C API as the bridge calls, in memory that sanitizers watch.
 *
 * It does what ONNX Runtime does with valid and invalid arguments, and a call of it can be made to fail. */
#ifndef FAKE_ORT_H
#define FAKE_ORT_H
#include "bridge.h"

enum { FAKE_MAX_RANK = 20, FAKE_MAX_TENSORS = 8, FAKE_MAX_ATTRIBUTES = 24, FAKE_MAX_LIST = 16 };

struct OrtStatus {
    int code;
    char text[1024];
};

struct OrtTensorTypeAndShapeInfo {
    int type;
    size_t rank;
    int64_t shape[FAKE_MAX_RANK];
};

struct OrtValue {
    OrtTensorTypeAndShapeInfo info;
    size_t bytes;
    void *data;
};

/* An attribute of a node. */
struct OrtOpAttr {
    enum { FAKE_INT, FAKE_FLOAT, FAKE_STRING, FAKE_INTS, FAKE_FLOATS } kind;
    const char *name;
    int64_t ints[FAKE_MAX_LIST];
    float floats[FAKE_MAX_LIST];
    char text[256];
    size_t count; /* of a list */
};

struct OrtKernelInfo {
    OrtOpAttr attributes[FAKE_MAX_ATTRIBUTES];
    int count;
};

struct OrtKernelContext {
    OrtValue *inputs[FAKE_MAX_TENSORS];  /* NULL: left out */
    OrtValue *outputs[FAKE_MAX_TENSORS]; /* made by the bridge */
    const OperatorRow *row;
    int threads; /* of ParallelFor */
};

struct OrtShapeInferContext {
    OrtTensorTypeAndShapeInfo inputs[FAKE_MAX_TENSORS];
    int input_count;
    const OrtKernelInfo *node;
};

/* The operators that the library has registered, each once. */
extern const Op *fake_ops[MAX_OPERATORS];
extern int fake_op_count;

/* The call of the API that fails, counted down in this thread, 0: none; and how many have failed. */
extern _Thread_local int fake_failing_call, fake_failed_calls;

/* Registers the library; returns 0, or 1 if it failed. */
int fake_register(void);

OrtValue *fake_new_value(int type, size_t rank, const int64_t *shape);
void fake_free_value(OrtValue *value);
#endif
