// onnxruntime_cxx_api.h - what docs/cpp.md and examples/cpp use of ONNX Runtime's C++ API, because the Python package
// has no headers.
//
// The names and signatures are those of the public API, and the slots of the C API's table are numbered.  With it the
// programs are compiled as they stand, linked to the Python package's library, and run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

enum OrtLoggingLevel { ORT_LOGGING_LEVEL_ERROR = 3 };
enum OrtAllocatorType { OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeDefault = 0 };
struct OrtApiBase {
    void *const *(*GetApi)(uint32_t version);
};
extern "C" const OrtApiBase *OrtGetApiBase();

namespace Ort {

template <typename Result, typename... Arguments>
Result call(int slot, Arguments... arguments) {
    static void *const *const table = OrtGetApiBase()->GetApi(16);
    return reinterpret_cast<Result (*)(Arguments...)>(table[slot])(arguments...);
}

struct Exception : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <typename... Arguments>
void check(int slot, Arguments... arguments) {
    if (void *status = call<void *>(slot, arguments...)) throw Exception(call<const char *>(2, status));
}

// An object of the C API, which slot `release` frees.
template <int release>
struct Object {
    void *pointer = nullptr;
    Object() = default;
    explicit Object(std::nullptr_t) {}
    Object(Object &&other) noexcept : pointer(std::exchange(other.pointer, nullptr)) {}
    ~Object() {
        if (pointer) call<void>(release, pointer);
    }
};

struct Env : Object<92> {
    Env(OrtLoggingLevel level, const char *name) { check(3, static_cast<int>(level), name, &pointer); }
};

struct SessionOptions : Object<100> {
    SessionOptions() { check(10, &pointer); }
    void RegisterCustomOpsLibrary(const char *path) { check(228, pointer, path); }
};

struct MemoryInfo : Object<94> {
    static MemoryInfo CreateCpu(OrtAllocatorType allocator, OrtMemType memory) {
        MemoryInfo info;
        check(69, static_cast<int>(allocator), static_cast<int>(memory), &info.pointer);
        return info;
    }
};

struct TensorTypeAndShapeInfo : Object<99> {
    std::vector<int64_t> GetShape() const {
        size_t rank;
        check(61, pointer, &rank);
        std::vector<int64_t> shape(rank);
        check(62, pointer, shape.data(), rank);
        return shape;
    }
};

struct Value : Object<96> {
    template <typename T>
    static Value CreateTensor(const MemoryInfo &info, T *data, size_t count, const int64_t *shape, size_t rank) {
        static_assert(std::is_same<T, float>() || std::is_same<T, int64_t>(), "the programs make no other tensors");
        const int type = std::is_same<T, float>() ? 1 : 7;
        Value value;
        check(49, info.pointer, static_cast<void *>(data), count * sizeof(T), shape, rank, type, &value.pointer);
        return value;
    }
    template <typename T>
    const T *GetTensorData() const {
        void *data;
        check(51, pointer, &data);
        return static_cast<const T *>(data);
    }
    TensorTypeAndShapeInfo GetTensorTypeAndShapeInfo() const {
        TensorTypeAndShapeInfo info;
        check(65, pointer, &info.pointer);
        return info;
    }
};

struct RunOptions : Object<97> {
    using Object<97>::Object;
};

struct AllocatorWithDefaultOptions {
    void *pointer = nullptr;  // is not freed
    AllocatorWithDefaultOptions() { check(78, &pointer); }
};

using AllocatedStringPtr = std::unique_ptr<char, std::function<void(void *)>>;

struct ModelMetadata : Object<118> {
    AllocatedStringPtr LookupCustomMetadataMapAllocated(const char *key,
                                                        const AllocatorWithDefaultOptions &allocator) const {
        char *text = nullptr;
        check(116, pointer, allocator.pointer, key, &text);
        void *owner = allocator.pointer;
        return AllocatedStringPtr(text, [owner](void *data) { check(76, owner, data); });
    }
};

struct Session : Object<95> {
    Session(Env &env, const char *path, const SessionOptions &options) {
        check(7, env.pointer, path, options.pointer, &pointer);
    }
    ModelMetadata GetModelMetadata() const {
        ModelMetadata metadata;
        check(111, pointer, &metadata.pointer);
        return metadata;
    }
    size_t GetInputCount() const {
        size_t count;
        check(30, pointer, &count);
        return count;
    }
    size_t GetOutputCount() const {
        size_t count;
        check(31, pointer, &count);
        return count;
    }
    AllocatedStringPtr GetInputNameAllocated(size_t index, const AllocatorWithDefaultOptions &allocator) const {
        return name(36, index, allocator);
    }
    AllocatedStringPtr GetOutputNameAllocated(size_t index, const AllocatorWithDefaultOptions &allocator) const {
        return name(37, index, allocator);
    }
    AllocatedStringPtr name(int function, size_t index, const AllocatorWithDefaultOptions &allocator) const {
        char *text = nullptr;
        check(function, pointer, index, allocator.pointer, &text);
        void *owner = allocator.pointer;
        return AllocatedStringPtr(text, [owner](void *data) { check(76, owner, data); });
    }
    std::vector<Value> Run(const RunOptions &options, const char *const *input_names, const Value *inputs,
                           size_t input_count, const char *const *output_names, size_t output_count) {
        std::vector<void *> given, made(output_count);
        for (size_t i = 0; i < input_count; i++) given.push_back(inputs[i].pointer);
        check(9, pointer, options.pointer, input_names, given.data(), input_count, output_names, output_count,
              made.data());
        std::vector<Value> outputs(output_count);
        for (size_t i = 0; i < output_count; i++) outputs[i].pointer = made[i];
        return outputs;
    }
};

}  // namespace Ort
