// rooms: room_model
/* docs/model-configs.md: its table of leaves is the schema. `test_config_docs --update` rewrites it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/config_internal.h"

static const char path[] = QN_SOURCE_DIR "/docs/model-configs.md";
static const char mark[] = "<!-- leaves -->\n";

/* `|` would end a cell. */
static void put_cell(FILE *f, const char *text)
{
    fputs(" | `", f);
    for (; *text; text++) {
        fputs(*text == '|' ? "\\|" : (char[]){*text, '\0'}, f);
    }
    fputc('`', f);
}

static char *table(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    static const char *const where[] = {"", "model", "base"};
    fputs("\n| leaf | type | default | where | meaning |\n|---|---|---|---|---|\n", f);
    for (int i = 0; qn_schema(i); i++) {
        const qn_schema_row *r = qn_schema(i);
        fprintf(f, "| `%s`", r->path);
        put_cell(f, r->type);
        if (r->default_text) {
            put_cell(f, r->default_text);
        } else {
            fputs(" | (required)", f);
        }
        fprintf(f, " | %s | %s |\n", where[qn_leaves[i].level], r->doc);
    }
    fclose(f);
    return text;
}

static char *read_all(void)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = calloc(1, (size_t)n + 1);
    if (text && fread(text, 1, (size_t)n, f) != (size_t)n) {
        free(text);
        text = NULL;
    }
    fclose(f);
    return text;
}

static int update(void)
{
    char *text = read_all(), *rows = table();
    char *at = text ? strstr(text, mark) : NULL;
    FILE *f = at ? fopen(path, "wb") : NULL;
    if (!f) {
        fprintf(stderr, "%s: cannot be updated\n", path);
        return 1;
    }
    fprintf(f, "%.*s%s", (int)(at - text + (long)strlen(mark)), text, rows);
    fclose(f);
    free(text);
    free(rows);
    return 0;
}

static void table_is_schema(void **state)
{
    (void)state;
    char *text = read_all(), *rows = table();
    assert_non_null(text);
    char *at = strstr(text, mark);
    assert_non_null(at);
    if (strcmp(at + strlen(mark), rows) != 0) {
        fail_msg("the table of leaves in %s is not the schema's; run test_config_docs --update", path);
    }
    free(text);
    free(rows);
}

/* Rows do not overlap: own path, own member, a range, words. */
static void rows_are_sound(void **state)
{
    (void)state;
    for (int i = 0; i < qn_n_leaves; i++) {
        const qn_leaf *l = &qn_leaves[i];
        assert_int_equal(qn_leaf_find(l->row.path), i);
        assert_true(l->offset < sizeof(qn_layer_cfg));
        for (int k = 0; k < i; k++) {
            assert_true(qn_leaves[k].offset != l->offset);
        }
        if (l->type == LEAF_INT || l->type == LEAF_FLOAT) {
            assert_true(l->lo < l->hi);
        }
        char word[32];
        if (l->type == LEAF_ENUM) {
            assert_true(qn_leaf_word(l, 1, word, sizeof word));
            assert_false(qn_leaf_word(l, 15, word, sizeof word));
        }
    }
    assert_null(qn_schema(qn_n_leaves));
    assert_null(qn_schema(-1));
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--update") == 0) {
        return update();
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_is_schema), cmocka_unit_test(rows_are_sound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
