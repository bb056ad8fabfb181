/* bridge.h - what the files of the ONNX Runtime library share.
 *
 * None of them depends on a particular operator: attributes.c reads a node's attributes, node.c runs it, inference.c
 * infers the shapes of its outputs, and registry.c registers all rows.  The library links to neither ONNX Runtime nor
 * Python; it calls ONNX Runtime through the OrtApiBase that RegisterCustomOps gets. */
#ifndef MMORT_BRIDGE_H
#define MMORT_BRIDGE_H
#include "operators.h"
#include "ort_abi.h"

enum { NAME_SIZE = 256, MESSAGE_SIZE = MMK_MESSAGE + 320 };

/* A row as registered.  ONNX Runtime passes the address of `ort` back, so that comes first. */
typedef struct {
    OrtCustomOp ort;
    const OrtApi *api;
    const OperatorRow *row;
    const mmk_operator *kernel;
    int runtime; /* 24 for ONNX Runtime 1.24 */
} Op;

#define TRY(expression)                    \
    do {                                   \
        OrtStatus *status_ = (expression); \
        if (status_) return status_;       \
    } while (0)

/* Releases a status; returns whether there was none. */
static inline int succeeded(const OrtApi *api, OrtStatus *status) {
    if (!status) return 1;
    api->ReleaseStatus(status);
    return 0;
}

/* attributes.c: reads a node's attributes into the kernel's. */
OrtStatus *mmk_read_attributes(const Op *op, const OrtKernelInfo *info, mmk_attribute *attributes);

/* node.c: the functions of a node. */
OrtStatus *ORT_CALL mmk_create_node(const OrtCustomOp *custom, const OrtApi *api, const OrtKernelInfo *info,
                                    void **out);
OrtStatus *ORT_CALL mmk_compute_node(void *kernel, OrtKernelContext *context);
void ORT_CALL mmk_destroy_node(void *kernel);

/* inference.c: sets the types and shapes of a node's outputs, as far as they are known. */
OrtStatus *ORT_CALL mmk_infer_outputs(const OrtCustomOp *custom, OrtShapeInferContext *context);
#endif
