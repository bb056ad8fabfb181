/* rows.c - checks and look-ups in the rows of operators.c that every front end needs. */
#include <string.h>

#include "operators.h"

const char *mmk_attribute_type_name(AttributeType type) {
    static const char *const names[] = {"INT", "FLOAT", "STRING", "INTS", "INT"};
    return names[type];
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
    int slots = 0, a = 0;
    for (; a <= MMK_MAX_ATTRIBUTES && row->attributes[a].name; a++) {
        slots += attribute_slots(&row->attributes[a]);
        if (row->attributes[a].words[MAX_WORDS]) return "has one word more than an attribute may have";
    }
    if (slots > MMK_MAX_ATTRIBUTES) return "has more attributes than an operator may have, a PAIR counting twice";
    return NULL;
}
