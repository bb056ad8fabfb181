/* describe.c - the rows as JSON, for programs that load the library (Python uses ctypes) and for the numpy API.
 *
 * "operators" lists the ONNX operators, one for each domain and type; "numpy_only" lists the kernels that have none.
 * Invalid rows are left out: registering the library reports what is wrong with them. */
#include <stdarg.h>
#include <stdio.h>

#include "operators.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef struct {
    char *data;
    size_t size, used;
} Text;

static void put(Text *text, const char *format, ...) {
    size_t room = text->used < text->size ? text->size - text->used : 0;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(room ? text->data + text->used : NULL, room, format, arguments);
    va_end(arguments);
    if (length > 0) text->used += (size_t)length;
}

static void put_formals(Text *text, const char *key, const Formal *formals) {
    put(text, "\"%s\": [", key);
    for (const Formal *formal = formals; formal->name; formal++)
        put(text, "%s{\"name\": \"%s\", \"type\": \"%s\", \"shape\": \"%s\", \"optional\": %s}",
            formal == formals ? "" : ", ", formal->name, mmk_element_type_name(formal->type), formal->shape,
            formal->optional ? "true" : "false");
    put(text, "], ");
}

static void put_words(Text *text, const char *key, const char *const *words) {
    put(text, "\"%s\": [", key);
    for (int w = 0; words[w]; w++) put(text, "%s\"%s\"", w ? ", " : "", words[w]);
    put(text, "], ");
}

static void put_default(Text *text, const Attribute *attribute) {
    const mmk_attribute *initial = &attribute->initial;
    put(text, "\"default\": ");
    if (attribute->required)
        put(text, "null");
    else if (attribute->type == ATTRIBUTE_STRING)
        put(text, "\"%s\"", attribute->words[initial->i]);
    else if (attribute->type == ATTRIBUTE_FLOAT)
        put(text, "%.9g", initial->f);
    else if (attribute->type == ATTRIBUTE_PAIR)
        put(text, "[%lld, %lld]", (long long)initial->i, (long long)initial->i);
    else
        put(text, "%lld", (long long)initial->i);
}

static void put_attribute(Text *text, const Attribute *attribute) {
    put(text, "{\"name\": \"%s\", \"type\": \"%s\", ", attribute->name, mmk_attribute_type_name(attribute->type));
    if (attribute->former) put(text, "\"former_name\": \"%s\", ", attribute->former);
    if (attribute->argument) put(text, "\"argument\": \"%s\", ", attribute->argument);
    if (attribute->words[0])
        put_words(text, attribute->type == ATTRIBUTE_STRING ? "choices" : "words", attribute->words);
    if (attribute->type == ATTRIBUTE_FLAG) put(text, "\"flag\": true, ");
    put_default(text, attribute);
    put(text, "}");
}

static void put_row(Text *text, const OperatorRow *row, const char *domain) {
    put(text, "{");
    if (domain) put(text, "\"domain\": \"%s\", \"type\": \"%s\", ", domain, row->type);
    put(text, "\"kernel\": \"%s\", ", row->kernel);
    put_formals(text, "inputs", row->inputs);
    put_formals(text, "outputs", row->outputs);
    put(text, "\"attributes\": [");
    for (const Attribute *attribute = row->attributes; attribute->name; attribute++) {
        put(text, "%s", attribute == row->attributes ? "" : ", ");
        put_attribute(text, attribute);
    }
    put(text, "]}");
}

/* Writes at most `size` bytes, the terminating NUL included; returns the length of the whole text, as snprintf does. */
EXPORT size_t mmort_describe(char *data, size_t size) {
    Text text = {data, size, 0};
    put(&text, "{\"version\": \"%s\", \"abi\": 1, \"simd\": \"%s\", \"operators\": [", MMK_VERSION, mmk_simd_level());
    const char *comma = "";
    for (const OperatorRow *row = operator_rows; row->kernel; row++)
        for (const char *const *domain = row->domains; *domain && !mmk_row_error(row); domain++) {
            put(&text, "%s", comma);
            put_row(&text, row, *domain);
            comma = ", ";
        }
    put(&text, "], \"numpy_only\": [");
    comma = "";
    for (const OperatorRow *row = operator_rows; row->kernel; row++)
        if (!row->type && !mmk_row_error(row)) {
            put(&text, "%s", comma);
            put_row(&text, row, NULL);
            comma = ", ";
        }
    put(&text, "]}");
    return text.used;
}
