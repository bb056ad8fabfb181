/* shapes.c - parses the language of shapes.h. */
#include "shapes.h"

#include <stdlib.h>

/* The functions of <string.h> that look for several characters take longer than a call's other checks of shapes. */
static int is_end(char c) { return c == ',' || c == ']' || c == '\0'; }
static int is_sign(char c) { return c == '*' || c == '/'; }

static size_t measure(const char *text, int stops_at_signs) {
    size_t length = 0;
    while (!is_end(text[length]) && !(stops_at_signs && is_sign(text[length]))) length++;
    return length;
}

static mmk_shape_token make_token(const char *text, size_t length) {
    mmk_shape_token token = {.kind = SHAPE_NAME, .text = text, .length = length};
    if (*text == '.')
        token.kind = SHAPE_REST;
    else if (*text == '?')
        token.kind = SHAPE_UNKNOWN;
    else if (measure(text, 1) < length)
        token.kind = SHAPE_PRODUCT;
    else if (*text >= '0' && *text <= '9') {
        token.kind = SHAPE_SIZE;
        token.size = strtoll(text, NULL, 10);
    }
    return token;
}

int mmk_next_dimension(const char **cursor, mmk_shape_token *dimension) {
    const char *text = *cursor;
    while (*text == '[' || *text == ',' || *text == ' ') text++;
    size_t length = measure(text, 0);
    *cursor = text + length;
    if (!length) return 0;
    *dimension = make_token(text, length);
    return 1;
}

int mmk_next_factor(const mmk_shape_token *product, size_t *position, mmk_shape_token *factor) {
    if (*position >= product->length) return 0;
    const char *text = product->text + *position;
    int divides = *position && text[-1] == '/';
    size_t length = measure(text, 1);
    *factor = make_token(text, length);
    factor->divides = divides;
    *position += length + 1;
    return 1;
}
