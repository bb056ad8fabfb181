/* describe.c - the library's description of itself, as JSON, for whoever loads it (Python reads it with ctypes). */
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

static const char *type_name(int type) {
    switch (type) {
    case MMK_FLOAT32: return "float32";
    case MMK_INT64: return "int64";
    default: return "unknown";
    }
}

static void put_formals(Text *text, const char *key, const Formal *formals) {
    put(text, "\"%s\": [", key);
    for (const Formal *f = formals; f->name; f++)
        put(text, "%s{\"name\": \"%s\", \"type\": \"%s\", \"shape\": \"%s\", \"optional\": %s}",
            f == formals ? "" : ", ", f->name, type_name(f->type), f->shape, f->optional ? "true" : "false");
    put(text, "], ");
}

static void put_attribute(Text *text, const Attribute *a) {
    static const char *const names[] = {"INT", "FLOAT", "STRING", "INTS"};
    put(text, "{\"name\": \"%s\", \"type\": \"%s\", ", a->name, names[a->type]);
    if (a->former) put(text, "\"former_name\": \"%s\", ", a->former);
    if (a->choices[0]) {
        put(text, "\"choices\": [");
        for (int c = 0; a->choices[c]; c++) put(text, "%s\"%s\"", c ? ", " : "", a->choices[c]);
        put(text, "], ");
    }
    if (a->required)
        put(text, "\"default\": null}");
    else if (a->type == ATTRIBUTE_STRING)
        put(text, "\"default\": \"%s\"}", a->choices[a->initial.i]);
    else if (a->type == ATTRIBUTE_FLOAT)
        put(text, "\"default\": %.9g}", a->initial.f);
    else if (a->type == ATTRIBUTE_PAIR)
        put(text, "\"default\": [%lld, %lld]}", (long long)a->initial.i, (long long)a->initial.i);
    else
        put(text, "\"default\": %lld}", (long long)a->initial.i);
}

/* Writes at most `size` bytes with a closing zero; returns the length of the whole text, as snprintf does. */
EXPORT size_t mmort_describe(char *data, size_t size) {
    Text text = {data, size, 0};
    put(&text, "{\"version\": \"%s\", \"abi\": 1, \"simd\": \"%s\", \"operators\": [", MMK_VERSION, mmk_simd_level());
    const char *comma = "";
    for (const OperatorRow *row = operator_rows; row->type; row++)
        for (const char *const *domain = row->domains; *domain; domain++) {
            put(&text, "%s{\"domain\": \"%s\", \"type\": \"%s\", \"kernel\": \"%s\", ", comma, *domain, row->type,
                row->kernel);
            put_formals(&text, "inputs", row->inputs);
            put_formals(&text, "outputs", row->outputs);
            put(&text, "\"attributes\": [");
            for (const Attribute *a = row->attributes; a->name; a++) {
                put(&text, "%s", a == row->attributes ? "" : ", ");
                put_attribute(&text, a);
            }
            put(&text, "]}");
            comma = ", ";
        }
    put(&text, "]}");
    return text.used;
}
