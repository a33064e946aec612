// Thoughts told from answers: every cut of a text into pieces gives the same parts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/quern.h"

static const quern_tags think = {"<think>", "</think>"};

typedef struct parts {
    char text[2][256];
    size_t len[2];
    bool answered;
} parts;

static void take(void *user, quern_part part, const char *text, size_t len)
{
    parts *p = user;
    assert_true(len > 0);
    assert_true(part == QUERN_PART_ANSWER || !p->answered); /* thoughts come first */
    p->answered = p->answered || part == QUERN_PART_ANSWER;
    memcpy(p->text[part] + p->len[part], text, len);
    p->len[part] += len;
    p->text[part][p->len[part]] = 0;
}

static void split(const quern_tags *tags, bool inside, const char *text, size_t first, size_t second,
                  parts *out)
{
    quern_error err;
    quern_splitter *s;
    memset(out, 0, sizeof *out);
    assert_int_equal(quern_splitter_new(&s, tags, inside, take, out, &err), 0);
    assert_int_equal(quern_splitter_part(s), inside ? QUERN_PART_THOUGHT : QUERN_PART_ANSWER);
    assert_int_equal(quern_splitter_feed(s, text, first, &err), 0);
    assert_int_equal(quern_splitter_feed(s, text + first, second - first, &err), 0);
    assert_int_equal(quern_splitter_feed(s, text + second, strlen(text) - second, &err), 0);
    quern_splitter_flush(s);
    quern_splitter_free(s);
}

static void check(const quern_tags *tags, bool inside, const char *text, const char *thought,
                  const char *answer)
{
    size_t n = strlen(text);
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = i; k <= n; k++) {
            parts p;
            split(tags, inside, text, i, k, &p);
            assert_string_equal(p.text[QUERN_PART_THOUGHT], thought);
            assert_string_equal(p.text[QUERN_PART_ANSWER], answer);
        }
    }
}

static void test_parts(void **state)
{
    (void)state;
    check(&think, false, "<think>\na b\n</think>\n\nyes", "a b", "yes");
    check(&think, false, "\n <think>a </b> <think></think>yes </think> ", "a </b> <think>", "yes </think> ");
    check(&think, true, "\na\n\nb</think>yes", "a\n\nb", "yes");
    check(&think, true, "<think>a</think>", "<think>a", "");
    check(&think, false, "<think></think>", "", "");
    check(&think, false, "<think>\n\n</think>\n\nyes\n", "", "yes\n");
    check(&think, false, "  yes <think>no</think>", "", "  yes <think>no</think>"); /* only at the start */
    check(&think, false, "<thinner>", "", "<thinner>");
    check(&think, false, "<thi", "", "<thi");
    check(&think, false, "", "", "");
    check(&think, false, " \n", "", " \n");
    check(&think, false, "<think>a \n</thin", "a \n</thin", ""); /* ended inside */
    check(&think, true, "a \n", "a", "");
    check(&think, true, "a<</think>b", "a<", "b");
    check(NULL, false, "<think>a</think>b", "", "<think>a</think>b");
    const quern_tags channel = {"<|channel>thought\n", "<channel|>"};
    check(&channel, false, "<|channel>thought\na\n<channel|>yes", "a", "yes");
}

static void test_rendering(void **state)
{
    (void)state;
    const struct {
        const char *text;
        bool thinks;
    } cases[] = {
        {"user\nHi\nassistant\n<think>\n", true},
        {"<think>", true},
        {"assistant\n<think>\n\n</think>\n\n", false},
        {"<think>Hi</s>assistant\n", false},
        {"think>", false},
        {"", false},
        {" \n", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char copy[64];
        snprintf(copy, sizeof copy, "%s", cases[i].text);
        const quern_rendering r = {.text = copy, .len = strlen(copy)};
        assert_int_equal(quern_rendering_thinks(&r, &think), cases[i].thinks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_rendering),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
