// detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]: what a detector of `mmort export` or `mmort adopt` finds, a line for
// each object.
//
// A line is: class, score, x1, y1, x2, y2 in pixels of the picture, and of detectors with masks the pixels of the mask.
// A portable file needs no library.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>
#include <string>
#include <vector>

using nlohmann::json;

const float MIN_SCORE = 0.3f;

// An entry of the file's metadata, empty if there is none.
json metadata(Ort::Session &session, const char *key) {
    Ort::AllocatorWithDefaultOptions allocator;
    const auto text = session.GetModelMetadata().LookupCustomMetadataMapAllocated(key, allocator);
    return text ? json::parse(text.get()) : json::object();
}

// The names of the inputs, or of the outputs.
std::vector<std::string> names_of(const Ort::Session &session, bool inputs) {
    Ort::AllocatorWithDefaultOptions allocator;
    std::vector<std::string> names;
    for (size_t i = 0; i < (inputs ? session.GetInputCount() : session.GetOutputCount()); i++)
        names.push_back(
            (inputs ? session.GetInputNameAllocated(i, allocator) : session.GetOutputNameAllocated(i, allocator))
                .get());
    return names;
}

bool has_name(const std::vector<std::string> &names, const char *name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

struct Input {
    cv::Mat blob;       // [1, 3, H, W]
    cv::Size image;     // the picture's size in it
    cv::Point2d start;  // where the picture starts in it
    cv::Vec2d scale;    // divide x and y of a box by it
};

// The size that a picture is resized to.
cv::Size resized_size(cv::Size picture, const json &settings) {
    const json target = settings.value("size", json());
    if (!target.is_array()) return picture;
    const double width = target[0], height = target[1];
    const std::string rounding = settings.value("rounding", "nearest");
    if (!settings.value("keep_ratio", true)) return cv::Size(static_cast<int>(width), static_cast<int>(height));
    if (!settings.value("turn_size", true)) {
        const double scale = std::min(width / picture.width, height / picture.height);
        const auto rounded = [&](int side) {
            return std::max(1, int(rounding == "nearest" ? std::nearbyint(side * scale) : side * scale));
        };
        return cv::Size(rounded(picture.width), rounded(picture.height));
    }
    if (rounding == "down") throw std::runtime_error("this example does not resize by the short side as transformers");
    const double scale = std::min(std::max(width, height) / std::max(picture.width, picture.height),
                                  std::min(width, height) / std::min(picture.width, picture.height));
    const double half = rounding == "truncate" ? 0 : 0.5;
    return cv::Size(std::max(1, int(picture.width * scale + half)), std::max(1, int(picture.height * scale + half)));
}

// The size of a picture that was padded.
cv::Size padded_size(cv::Size size, const json &padding) {
    if (padding.value("square", false)) size.width = size.height = std::max(size.width, size.height);
    if (const json target = padding.value("size", json()); target.is_array())
        size = cv::Size(std::max(size.width, target[0].get<int>()), std::max(size.height, target[1].get<int>()));
    const int divisor = padding.value("size_divisor", 1);
    return cv::Size(cv::divUp(size.width, divisor) * divisor, cv::divUp(size.height, divisor) * divisor);
}

// Resize, normalize and pad a picture as the metadata's `preprocessing` says.
Input preprocess(const cv::Mat &picture, json settings) {
    if (settings.empty()) throw std::runtime_error("the file has no metadata of mmort export");
    if (settings.value("pad_or", 0) || settings.value("resize_backend", "cv2") != "cv2" ||
        settings.value("to_float32", false) || settings.value("interpolation", "bilinear") != "bilinear" ||
        settings.value("inclusive_boxes", false) || settings.value("by_ratio", false))
        throw std::runtime_error("this example resizes bytes with OpenCV, bilinear, and knows no padding by bits");
    const json padding = settings["padding"].is_object() ? settings["padding"] : json::object();
    if (padding.value("half_pixels", false) || !settings.value("enlarges", true))
        throw std::runtime_error("this example moves boxes by whole pixels, and enlarges all smaller pictures");
    const cv::Size size = resized_size(picture.size(), settings), canvas = padded_size(size, padding);
    cv::Mat resized;
    cv::resize(picture, resized, size);
    const int divisor = settings.value("size_divisor", 1);
    const int rows = cv::divUp(canvas.height, divisor) * divisor, columns = cv::divUp(canvas.width, divisor) * divisor;
    const cv::Vec2d scale(double(size.width) / picture.cols, double(size.height) / picture.rows);
    const cv::Point start = padding.value("centred", false)
                                ? cv::Point((canvas.width - size.width) / 2, (canvas.height - size.height) / 2)
                                : cv::Point();
    const cv::Size image = padding.value("in_image", false) ? canvas : size;
    Input input{cv::Mat({1, 3, rows, columns}, CV_32F, cv::Scalar(0)), image, start, scale};
    const json value = padding.value("value", json());
    for (int channel = 0; channel < 3; channel++) {
        const int source = settings.value("to_rgb", false) ? 2 - channel : channel;
        cv::Mat plane(rows, columns, CV_32F, input.blob.ptr<float>(0, channel)), values;
        cv::extractChannel(resized, values, source);
        const float mean = settings.at("mean")[channel], std = settings.at("std")[channel];
        values.convertTo(values, CV_32F);
        if (!value.is_null()) {
            const float level = value.is_array() ? value[source].get<float>() : value.get<float>();
            plane(cv::Rect(cv::Point(), canvas)) = (level - mean) / std;
        }
        cv::Mat((values - mean) / std).copyTo(plane(cv::Rect(start, size)));
    }
    return input;
}

// Paste the probabilities over a box into a mask of the picture's size.
cv::Mat paste(const float *probabilities, int rows, int columns, const cv::Rect2d &box, cv::Size size) {
    const cv::Mat cells(rows, columns, CV_32F, const_cast<float *>(probabilities));
    const double x = columns / box.width, y = rows / box.height;  // cells per pixel
    const cv::Matx23d to_cells(x, 0, (0.5 - box.x) * x - 0.5, 0, y, (0.5 - box.y) * y - 0.5);
    cv::Mat pasted;
    cv::warpAffine(cells, pasted, to_cells, size, cv::INTER_LINEAR | cv::WARP_INVERSE_MAP);
    return pasted >= 0.5f;
}

int main(int argc, char **argv) try {
    if (argc != 3 && argc != 4) throw std::runtime_error("usage: detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]");
    const cv::Mat picture = cv::imread(argv[2]);
    if (picture.empty()) throw std::runtime_error(std::string(argv[2]) + " is not a picture that OpenCV reads");

    Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "detect");
    Ort::SessionOptions options;
    if (argc == 4) options.RegisterCustomOpsLibrary(argv[3]);
    Ort::Session session(env, argv[1], options);
    const json classes = metadata(session, "classes");
    const json settings = metadata(session, "preprocessing");
    Input input = preprocess(picture, settings);
    const bool clips = settings.value("clip_boxes", false);
    const bool has_masks = has_name(names_of(session, false), "masks");
    if (has_masks && metadata(session, "masks").value("area", "box") != "box")
        throw std::runtime_error("this example pastes masks over boxes, and those of the file are over the input");

    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const int64_t shape[] = {1, 3, input.blob.size[2], input.blob.size[3]}, size_shape[] = {1, 2};
    int64_t img_shape[] = {input.image.height, input.image.width};
    Ort::Value inputs[] = {
        Ort::Value::CreateTensor<float>(memory, input.blob.ptr<float>(), input.blob.total(), shape, 4),
        Ort::Value::CreateTensor<int64_t>(memory, img_shape, 2, size_shape, 2)};
    const std::vector<std::string> names = names_of(session, true);
    const char *input_names[] = {names.at(0).c_str(), "img_shape"}, *output_names[] = {"dets", "labels", "masks"};
    const size_t input_count = has_name(names, "img_shape") ? 2 : 1;
    const auto outputs =
        session.Run(Ort::RunOptions{nullptr}, input_names, inputs, input_count, output_names, has_masks ? 3 : 2);

    const float *det = outputs[0].GetTensorData<float>();         // [1, K, 5]: x1, y1, x2, y2, score
    const int64_t *labels = outputs[1].GetTensorData<int64_t>();  // [1, K], -1 in unused rows
    const auto dets_shape = outputs[0].GetTensorTypeAndShapeInfo().GetShape();
    if (dets_shape[2] != 5) throw std::runtime_error("this example does not know rotated boxes");
    const auto mask_shape = has_masks ? outputs[2].GetTensorTypeAndShapeInfo().GetShape() : std::vector<int64_t>(4);
    for (int64_t i = 0; i < dets_shape[1]; i++, det += 5) {
        if (labels[i] < 0 || det[4] < MIN_SCORE) continue;
        const auto in_picture = [&](double x, double y) {
            const cv::Point2d point((x - input.start.x) / input.scale[0], (y - input.start.y) / input.scale[1]);
            return clips ? cv::Point2d(std::min(std::max(point.x, 0.0), double(picture.cols)),
                                       std::min(std::max(point.y, 0.0), double(picture.rows)))
                         : point;
        };
        const cv::Rect2d box(in_picture(det[0], det[1]), in_picture(det[2], det[3]));
        const std::string name = classes[labels[i]];
        std::printf("%s %.4f %.2f %.2f %.2f %.2f", name.c_str(), det[4], box.x, box.y, box.br().x, box.br().y);
        if (has_masks) {
            const int rows = int(mask_shape[2]), columns = int(mask_shape[3]);
            const float *probabilities = outputs[2].GetTensorData<float>() + i * rows * columns;
            std::printf(" %d", cv::countNonZero(paste(probabilities, rows, columns, box, picture.size())));
        }
        std::printf("\n");
    }
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
