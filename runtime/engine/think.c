/* think.c: the thoughts of a model, told from its answer by the tags around them. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

/* Spellings in use. What stands after a tag's name belongs to it where a template always writes it so. */
static const quern_tags known[] = {
    {"<think>", "</think>"},
    {"<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"[THINK]", "[/THINK]"},
    {"<|channel>thought\n", "<channel|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<thinking>", "</thinking>"},
};

/* Templates spell a newline in a string as \n, and those in plain text as it is. */
static bool source_has(const char *source, size_t len, const char *tag)
{
    size_t n = strcspn(tag, "\n");
    return memmem(source, len, tag, n) != NULL;
}

static bool is_token(const quern_model *m, const char *text)
{
    return qn_token_find(m->tok, text, strlen(text)) >= 0;
}

bool quern_thinking_tags(const quern_template *t, const quern_model *m, quern_tags *tags)
{
    size_t len = 0, n = sizeof known / sizeof *known;
    const char *source = t != NULL ? quern_template_source(t, &len) : NULL;
    for (size_t i = 0; i < n && source != NULL; i++) {
        if (source_has(source, len, known[i].open) && source_has(source, len, known[i].close)) {
            *tags = known[i];
            return true;
        }
    }
    for (size_t i = 0; i < n && m != NULL && m->tok != NULL; i++) {
        if (is_token(m, known[i].open) && is_token(m, known[i].close)) {
            *tags = known[i];
            return true;
        }
    }
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool quern_rendering_thinks(const quern_rendering *r, const quern_tags *tags)
{
    size_t len = r->len, n = strlen(tags->open);
    /* A tag that ends in white space has been cut along with it. */
    while (n > 0 && is_space(tags->open[n - 1])) {
        n--;
    }
    while (len > 0 && is_space(r->text[len - 1])) {
        len--;
    }
    return n > 0 && len >= n && memcmp(r->text + len - n, tags->open, n) == 0;
}

size_t quern_tags_control(const quern_model *m, const quern_tags *tags, int32_t *ids, size_t max)
{
    size_t n_ids = 0;
    const char *tag[] = {tags->open, tags->close};
    for (size_t i = 0; i < 2 && m->tok != NULL; i++) {
        int32_t *all = NULL;
        size_t n = 0;
        qn_err ignored; /* a tag that cannot be tokenised has no control tokens */
        if (qn_tokenize(m->tok, tag[i], strlen(tag[i]), false, true, &all, &n, &ignored) != 0) {
            continue;
        }
        for (size_t k = 0; k < n && n_ids < max; k++) {
            if (qn_token_get_attr(m->tok, all[k]) == QN_TOKEN_CONTROL) {
                ids[n_ids++] = all[k];
            }
        }
        free(all);
    }
    return n_ids;
}

typedef enum place { BEFORE, IN_THOUGHT, BEHIND, IN_ANSWER } place;

struct quern_splitter {
    quern_tags tags;
    place at;
    bool begun; /* some of the thought has come out */
    char *held;
    size_t n_held, cap;
    quern_part_fn fn;
    void *user;
};

int quern_splitter_new(quern_splitter **out, const quern_tags *tags, bool in_thought, quern_part_fn fn,
                       void *user, quern_error *error)
{
    *out = qn_calloc(1, sizeof **out);
    if (*out == NULL) {
        return qn_fail(qn_engine_err(error), "out of memory");
    }
    **out = (quern_splitter){.at = tags == NULL ? IN_ANSWER
                                   : in_thought ? IN_THOUGHT
                                                : BEFORE,
                             .fn = fn,
                             .user = user};
    if (tags != NULL) {
        (*out)->tags = *tags;
    }
    return 0;
}

void quern_splitter_free(quern_splitter *s)
{
    if (s != NULL) {
        free(s->held);
        free(s);
    }
}

quern_part quern_splitter_part(const quern_splitter *s)
{
    return s->at == IN_THOUGHT ? QUERN_PART_THOUGHT : QUERN_PART_ANSWER;
}

/* Takes the first n bytes held away, without or with showing them. */
static void drop(quern_splitter *s, size_t n)
{
    s->n_held -= n;
    memmove(s->held, s->held + n, s->n_held);
}

static void emit(quern_splitter *s, size_t n)
{
    if (n > 0) {
        s->fn(s->user, quern_splitter_part(s), s->held, n);
        drop(s, n);
    }
}

static size_t n_space(const quern_splitter *s)
{
    size_t n = 0;
    while (n < s->n_held && is_space(s->held[n])) {
        n++;
    }
    return n;
}

static size_t without_space(const char *text, size_t n)
{
    while (n > 0 && is_space(text[n - 1])) {
        n--;
    }
    return n;
}

/* Each step returns whether the place has changed, and what is held is to be looked at once more. */
static bool before(quern_splitter *s)
{
    size_t n_open = strlen(s->tags.open), blank = n_space(s), n = s->n_held - blank;
    if (memcmp(s->held + blank, s->tags.open, n < n_open ? n : n_open) != 0) {
        s->at = IN_ANSWER;
        return true;
    }
    if (n < n_open) {
        return false;
    }
    drop(s, blank + n_open);
    s->at = IN_THOUGHT;
    return true;
}

static bool in_thought(quern_splitter *s)
{
    if (!s->begun) {
        drop(s, n_space(s));
    }
    size_t n_close = strlen(s->tags.close);
    const char *close = memmem(s->held, s->n_held, s->tags.close, n_close);
    if (close != NULL) {
        size_t n = (size_t)(close - s->held), text = without_space(s->held, n);
        emit(s, text);
        drop(s, n - text + n_close);
        s->at = BEHIND;
        return true;
    }
    size_t tail = s->n_held < n_close ? s->n_held : n_close - 1;
    while (tail > 0 && memcmp(s->held + s->n_held - tail, s->tags.close, tail) != 0) {
        tail--;
    }
    size_t n = without_space(s->held, s->n_held - tail);
    s->begun = s->begun || n > 0;
    emit(s, n);
    return false;
}

static bool behind(quern_splitter *s)
{
    drop(s, n_space(s));
    if (s->n_held > 0) {
        s->at = IN_ANSWER;
    }
    return s->n_held > 0;
}

int quern_splitter_feed(quern_splitter *s, const char *text, size_t len, quern_error *error)
{
    if (len > SIZE_MAX / 2 - s->n_held) {
        return qn_fail(qn_engine_err(error), "a text of %zu bytes is too long", len);
    }
    if (s->n_held + len > s->cap) {
        size_t cap = 2 * (s->n_held + len);
        char *held = realloc(s->held, cap);
        if (held == NULL) {
            return qn_fail(qn_engine_err(error), "out of memory for %zu bytes of text", cap);
        }
        s->held = held;
        s->cap = cap;
    }
    if (len > 0) {
        memcpy(s->held + s->n_held, text, len);
        s->n_held += len;
    }
    bool moved = s->n_held > 0;
    while (moved) {
        switch (s->at) {
        case BEFORE:
            moved = before(s);
            break;
        case IN_THOUGHT:
            moved = in_thought(s);
            break;
        case BEHIND:
            moved = behind(s);
            break;
        case IN_ANSWER:
            emit(s, s->n_held);
            moved = false;
            break;
        }
    }
    return 0;
}

void quern_splitter_flush(quern_splitter *s)
{
    if (s->at == IN_THOUGHT) {
        s->n_held = without_space(s->held, s->n_held);
    }
    emit(s, s->n_held);
}
