"""The bridge and the kernels without ONNX Runtime: a coverage-guided fuzzer, failing allocations, races."""
