/* rows.c - what every front end needs of rows: names of types, and checks of the table in operators.c. */
#include <string.h>

#include "operators.h"

static const struct {
    const char *name;
    size_t size;
} element_types[] = {
    [MMK_FLOAT32] = {"float32", 4}, [MMK_UINT8] = {"uint8", 1},   [MMK_INT8] = {"int8", 1},
    [MMK_UINT16] = {"uint16", 2},   [MMK_INT16] = {"int16", 2},   [MMK_INT32] = {"int32", 4},
    [MMK_INT64] = {"int64", 8},     [MMK_BOOL] = {"bool", 1},     [MMK_FLOAT64] = {"float64", 8},
    [MMK_UINT32] = {"uint32", 4},   [MMK_UINT64] = {"uint64", 8},
};

static int is_element_type(int type) {
    return type > 0 && type < (int)(sizeof element_types / sizeof *element_types) && element_types[type].name;
}

const char *mmk_element_type_name(int type) { return is_element_type(type) ? element_types[type].name : "unknown"; }

size_t mmk_element_size(int type) { return is_element_type(type) ? element_types[type].size : 0; }

const char *mmk_attribute_type_name(AttributeType type) {
    static const char *const names[] = {"INT", "FLOAT", "STRING", "INTS", "INT"};
    return names[type];
}

int mmk_copy_inputs(const OperatorRow *row, mmk_call *call, void **memory) {
    size_t sizes[MMK_MAX_INPUTS] = {0}, total = 0;
    for (int i = 0; row->inputs[i].name; i++) {
        if (!row->inputs[i].copied) continue;
        sizes[i] = (size_t)call->inputs[i].size * mmk_element_size(call->inputs[i].type);
        total += (sizes[i] + 63) & ~(size_t)63;
    }
    char *copy = mmk_allocate_scratch(total, memory);
    if (total && !copy) return -1;
    for (int i = 0; row->inputs[i].name; i++) {
        if (!sizes[i]) continue;
        call->inputs[i].data = memcpy(copy, call->inputs[i].data, sizes[i]);
        copy += (sizes[i] + 63) & ~(size_t)63;
    }
    return 0;
}

const mmk_operator *mmk_find_kernel(const char *name) {
    const mmk_operator *kernel = mmk_operators;
    while (kernel->name && strcmp(kernel->name, name) != 0) kernel++;
    return kernel->name ? kernel : NULL;
}

const char *mmk_row_error(const OperatorRow *row) {
    if (!mmk_find_kernel(row->kernel)) return "names a kernel that none of the sources defines";
    if (row->domains[MAX_OPERATOR_DOMAINS]) return "has one domain more than an operator may have";
    if (row->inputs[MMK_MAX_INPUTS].name) return "has one input more than an operator may have";
    if (row->outputs[MMK_MAX_OUTPUTS].name) return "has one output more than an operator may have";
    int slots = 0;
    for (int a = 0; a <= MMK_MAX_ATTRIBUTES && row->attributes[a].name; a++) {
        slots += attribute_slots(&row->attributes[a]);
        if (row->attributes[a].words[MAX_WORDS]) return "has one word more than an attribute may have";
    }
    if (slots > MMK_MAX_ATTRIBUTES) return "has more attributes than an operator may have, a PAIR counting twice";
    return NULL;
}
