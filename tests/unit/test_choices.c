// rooms: room_codegen
// Choices on disk: kept and found by what they hold for; a file that is cut, changed or another's gives none.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/choices.h"

static char dir[] = "/tmp/quern-choices-XXXXXX", place[64];

static qn_choices opened(const char *kind, const char *head)
{
    qn_choices c;
    qn_err err;
    assert_int_equal(qn_choices_open(&c, place, kind, head, &err), 0);
    return c;
}

static void keep_two(const char *head)
{
    qn_err err;
    qn_choices c = opened("kernels", head);
    assert_true(qn_choices_put(&c, "linear in 64 out 96 q4_K", "warps 8"));
    assert_true(qn_choices_put(&c, "glu in 64", "warps 16"));
    assert_true(qn_choices_put(&c, "glu in 64", "warps 4, ahead 2"));
    assert_int_equal(qn_choices_keep(&c, &err), 0);
    qn_choices_free(&c);
}

static void kept_and_found(void **state)
{
    (void)state;
    keep_two("Card A; driver 13000");
    qn_choices c = opened("kernels", "Card A; driver 13000");
    assert_int_equal(c.n, 2);
    assert_string_equal(c.why.text, "");
    assert_string_equal(qn_choices_get(&c, "linear in 64 out 96 q4_K"), "warps 8");
    assert_string_equal(qn_choices_get(&c, "glu in 64"), "warps 4, ahead 2");
    assert_null(qn_choices_get(&c, "glu in 6"));
    qn_choices_free(&c);
    static const char *const others[][2] = {{"kernels", "Card B; driver 13000"},
                                            {"kernels", "Card A; driver 12080"},
                                            {"products", "Card A; driver 13000"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        c = opened(others[i][0], others[i][1]);
        assert_int_equal(c.n, 0);
        assert_string_equal(c.why.text, "");
        qn_choices_free(&c);
    }
}

// Every byte may be wrong, and the file may end anywhere: then it is ignored, and that is said.
static void damaged(void **state)
{
    (void)state;
    keep_two("Card C");
    qn_choices c = opened("kernels", "Card C");
    char path[sizeof c.path], text[1024];
    snprintf(path, sizeof path, "%s", c.path);
    qn_choices_free(&c);
    FILE *f = fopen(path, "r");
    size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    for (size_t i = 0; i < size; i++) {
        for (int cut = 0; cut < 2; cut++) {
            f = fopen(path, "w");
            fwrite(text, 1, i, f);
            if (!cut) {
                fputc(text[i] ^ 0x15, f);
                fwrite(text + i + 1, 1, size - i - 1, f);
            }
            fclose(f);
            c = opened("kernels", "Card C");
            assert_int_equal(c.n, 0);
            assert_non_null(strstr(c.why.text, path));
            qn_choices_free(&c);
        }
    }
    keep_two("Card C"); // written anew over it
    c = opened("kernels", "Card C");
    assert_int_equal(c.n, 2);
    qn_choices_free(&c);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0); // not a file at all
    c = opened("kernels", "Card C");
    assert_int_equal(c.n, 0);
    assert_string_not_equal(c.why.text, "");
    qn_choices_free(&c);
    assert_int_equal(rmdir(path), 0);
}

// One that was copied to another's name.
static void of_another_card(void **state)
{
    (void)state;
    keep_two("Card D");
    qn_choices d = opened("kernels", "Card D"), e = opened("kernels", "Card E");
    assert_int_equal(rename(d.path, e.path), 0);
    qn_choices_free(&e);
    e = opened("kernels", "Card E");
    assert_int_equal(e.n, 0);
    assert_non_null(strstr(e.why.text, "another version or card"));
    assert_int_equal(unlink(e.path), 0);
    qn_choices_free(&d);
    qn_choices_free(&e);
}

static int count(void *user, const qn_choices *c)
{
    int *n = user;
    n[0]++;
    n[1] += c->n;
    n[2] += c->why.text[0] != '\0';
    return 0;
}

static void each_of_a_folder(void **state)
{
    (void)state;
    int n[3] = {0};
    qn_err err;
    assert_int_equal(qn_choices_each("/nowhere/at/all", count, n, &err), 0);
    assert_int_equal(n[0], 0);
    static const char *const files[] = {"kernels-0123456789abcdef.txt", "kernels-0123.txt", "limits.json",
                                        "products-0123456789abcdeg.txt"};
    char path[128];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", place, files[i]);
        fclose(fopen(path, "w"));
    }
    assert_int_equal(qn_choices_each(place, count, n, &err), 0);
    assert_int_equal(n[0], 2); // of card A, and one that is damaged
    assert_int_equal(n[1], 2);
    assert_int_equal(n[2], 1);
}

static void what_cannot_be_kept(void **state)
{
    (void)state;
    qn_err err;
    qn_choices c = opened("kernels", "Card A; driver 13000");
    char text[QN_CHOICES_LINE];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_false(qn_choices_put(&c, text, "value"));
    assert_int_equal(c.n, 2);
    snprintf(c.path, sizeof c.path, "/dev/null/kernels.txt");
    assert_int_equal(qn_choices_keep(&c, &err), -1);
    qn_choices_free(&c);
    char head[QN_CHOICES_HEAD + 1];
    memset(head, 'x', sizeof head - 1);
    head[sizeof head - 1] = '\0';
    assert_int_equal(qn_choices_open(&c, place, "kernels", head, &err), -1);
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(place, sizeof place, "%s/new", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_and_found),      cmocka_unit_test(damaged),
        cmocka_unit_test(of_another_card),     cmocka_unit_test(each_of_a_folder),
        cmocka_unit_test(what_cannot_be_kept),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
