/* attributes.c - reads the attributes of an ONNX Runtime node, checked and converted by the row. */
#include <stdio.h>
#include <string.h>

#include "bridge.h"

/* Returns the type of a node's attribute; NULL if it is missing, for which ONNX Runtime has the same error as for a
 * type that does not match. */
static const char *find_type(const OrtApi *api, const OrtKernelInfo *info, const char *name) {
    float f;
    int64_t i;
    size_t size = 0;
    if (succeeded(api, api->KernelInfoGetAttribute_float(info, name, &f))) return "FLOAT";
    if (succeeded(api, api->KernelInfoGetAttribute_int64(info, name, &i))) return "INT";
    if (succeeded(api, api->KernelInfoGetAttribute_string(info, name, NULL, &size))) return "STRING";
    /* ONNX Runtime returns an empty list if the attribute is a list of another type. */
    size = 0;
    if (!succeeded(api, api->KernelInfoGetAttributeArray_float(info, name, NULL, &size))) return NULL;
    if (size) return "FLOATS";
    if (succeeded(api, api->KernelInfoGetAttributeArray_int64(info, name, NULL, &size)) && size) return "INTS";
    return "another type";
}

static OrtStatus *attribute_error(const Op *op, const OrtKernelInfo *info, const char *text) {
    char node[NAME_SIZE] = "", message[MESSAGE_SIZE];
    size_t size = sizeof node;
    succeeded(op->api, op->api->KernelInfo_GetNodeName(info, node, &size));
    snprintf(message, sizeof message, "%s: %s (%s node '%s')", op->row->kernel, text, op->row->type, node);
    return op->api->CreateStatus(ORT_INVALID_ARGUMENT, message);
}

static OrtStatus *read_word(const Op *op, const OrtKernelInfo *info, const Attribute *attribute, const char *name,
                            mmk_attribute *value) {
    char text[64] = "", message[NAME_SIZE], allowed[NAME_SIZE] = "";
    size_t size = sizeof text;
    int known = succeeded(op->api, op->api->KernelInfoGetAttribute_string(info, name, text, &size));
    size_t length = known && size ? size - 1 : 0; /* the size counts a terminating NUL */
    for (int w = 0; attribute->words[w]; w++) {
        if (known && strlen(attribute->words[w]) == length && !memcmp(text, attribute->words[w], length)) {
            value->i = w;
            return NULL;
        }
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s'%s'", w ? " or " : "", attribute->words[w]);
    }
    for (size_t i = 0; i < length; i++) /* the message must be UTF-8, and C's functions end it at a NUL */
        if (text[i] < ' ' || text[i] > '~') text[i] = '?';
    snprintf(message, sizeof message, "%s must be %s, got '%s'", name, allowed, known ? text : "a longer text");
    return attribute_error(op, info, message);
}

static OrtStatus *read_pair(const Op *op, const OrtKernelInfo *info, const char *name, const char *type,
                            mmk_attribute *values) {
    int64_t integers[4];
    size_t size = sizeof integers / sizeof *integers;
    char message[NAME_SIZE];
    if (!strcmp(type, "INT")) {
        size = 1;
        TRY(op->api->KernelInfoGetAttribute_int64(info, name, integers));
    } else if (!succeeded(op->api, op->api->KernelInfoGetAttributeArray_int64(info, name, integers, &size))) {
        size = 0; /* more than fit */
    }
    int fits = size == 1 || size == 2 || (size == 4 && integers[0] == integers[1] && integers[2] == integers[3]);
    if (!fits) {
        snprintf(message, sizeof message, "%s must be two integers (or four, each twice), got others", name);
        return attribute_error(op, info, message);
    }
    values[0].i = integers[0];
    values[1].i = integers[size / 2];
    return NULL;
}

/* Reads an attribute, or sets its default: one value, or two for a PAIR. */
static OrtStatus *read_attribute(const Op *op, const OrtKernelInfo *info, const Attribute *attribute,
                                 mmk_attribute *value) {
    const OrtApi *api = op->api;
    const char *required_type = mmk_attribute_type_name(attribute->type);
    const char *name = attribute->name, *type = find_type(api, info, name);
    char message[NAME_SIZE];
    float f = 0;
    if (!type && attribute->former) {
        type = find_type(api, info, attribute->former);
        if (type) name = attribute->former;
    }
    if (!type && attribute->required) {
        snprintf(message, sizeof message, "attribute %s (%s) is missing", name, required_type);
        return attribute_error(op, info, message);
    }
    int is_pair = attribute->type == ATTRIBUTE_PAIR;
    if (type && strcmp(type, required_type) != 0 && !(is_pair && !strcmp(type, "INT"))) {
        snprintf(message, sizeof message, "attribute %s must be of type %s, got %s", name, required_type, type);
        return attribute_error(op, info, message);
    }
    *value = attribute->initial;
    if (is_pair) value[1] = attribute->initial;
    if (!type) return NULL;
    if (is_pair) return read_pair(op, info, name, type, value);
    if (attribute->type == ATTRIBUTE_STRING) return read_word(op, info, attribute, name, value);
    if (attribute->type == ATTRIBUTE_INT || attribute->type == ATTRIBUTE_FLAG)
        return api->KernelInfoGetAttribute_int64(info, name, &value->i);
    TRY(api->KernelInfoGetAttribute_float(info, name, &f));
    value->f = f;
    return NULL;
}

OrtStatus *mmk_read_attributes(const Op *op, const OrtKernelInfo *info, mmk_attribute *attributes) {
    for (const Attribute *attribute = op->row->attributes; attribute->name; attribute++) {
        TRY(read_attribute(op, info, attribute, attributes));
        attributes += attribute_slots(attribute);
    }
    return NULL;
}
