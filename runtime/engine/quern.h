/* quern.h: the public interface of libquern. docs/embedding.md has a program and says these rules at length.
 *
 * Errors: every function that can fail returns 0 on success and -1 on failure, with one line in `err` (never
 * NULL). On failure what it would have made is NULL or empty, and nothing is left to free.
 *
 * The library never prints, never exits, installs no signal handler and changes no state of the process.
 *
 * Ownership: objects and results are freed by their own _free function, which takes NULL or an empty result
 * too; what is "malloc'ed" by free(). Free a model after its sessions and templates. Parameters and strings
 * are borrowed for the call; callbacks and their `user` must live as long as the object given them. A const
 * pointer into an object is valid until the object is used again or freed.
 *
 * Threads: objects are independent. quern_model and quern_template are read-only once made and may be used by
 * any number of threads at once; a session or sampler by one thread at a time. Callbacks run on the caller's
 * thread; `log` and `loading` may also come from threads of the library, `log` from every user of its model.
 */
#ifndef QUERN_H
#define QUERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUERN_API __attribute__((visibility("default")))

typedef struct quern_error {
    char text[1024];
} quern_error;

typedef struct quern_model quern_model;
typedef struct quern_session quern_session;
typedef struct quern_sampler quern_sampler;

QUERN_API const char *quern_version(void);

/* Progress and warnings; may be NULL. `level`: 0 error-free notice shown by default, 1 detail (-v). */
typedef void (*quern_log_fn)(void *user, int level, const char *line);

typedef struct quern_model_params {
    const char *config_dir; /* replaces the embedded model configs, and the tokenizers' where it has a folder
                             * `tokenizers`; NULL: embedded */
    int n_ctx;              /* context the model's choices are resolved for; 0: min(trained, 4096) */
    quern_log_fn log;
    void *log_user;
    const int32_t *end_tokens; /* replaces the list of tokens that end a generation; NULL: as the file says */
    size_t n_end_tokens;
    bool no_tokenizer; /* ids only: the file's tokenizer is not read */
} quern_model_params;

/* Loads a GGUF file (weights stay in the file's map). params may be NULL. */
QUERN_API int quern_model_load(quern_model **out, const char *path, const quern_model_params *params,
                               quern_error *err);
QUERN_API void quern_model_free(quern_model *m);
QUERN_API int quern_model_n_vocab(const quern_model *m);
QUERN_API int quern_model_n_ctx(const quern_model *m);       /* of the run */
QUERN_API int quern_model_n_ctx_train(const quern_model *m); /* 0: unknown */
QUERN_API bool quern_model_has_tokenizer(const quern_model *m);

/* Text to ids: *ids is malloc'ed. */
QUERN_API int quern_tokenize(const quern_model *m, const char *text, size_t len, bool add_special,
                             bool parse_special, int32_t **ids, size_t *n, quern_error *err);
/* Ids to bytes: *text is malloc'ed, NUL-terminated beyond *len. special: include control tokens' text. */
QUERN_API int quern_detokenize(const quern_model *m, const int32_t *ids, size_t n, bool special, char **text,
                               size_t *len, quern_error *err);
QUERN_API bool quern_is_end_token(const quern_model *m, int32_t id);

/* Chat templates: a conversation to the text that the model was trained on, and to its ids. A template is
 * read-only once made and may serve many threads; it must be freed before its model. docs/chat-templates.md.
 */
typedef struct quern_template quern_template;

/* The template called `name`: one of the file's named variants (tokenizer.chat_template.NAME), else a
 * built-in. NULL: the file's own (tokenizer.chat_template); a file without one is an error that lists the
 * built-ins: none is ever chosen silently. m gives the texts of bos_token, eos_token and the like; it may be
 * NULL for a built-in (they are undefined then). A template that does not parse, or uses what is not
 * supported, is an error with its line. */
QUERN_API int quern_template_open(quern_template **out, const quern_model *m, const char *name,
                                  quern_error *err);
/* The same from Jinja text; `label` is how errors call it (a file's name). */
QUERN_API int quern_template_parse(quern_template **out, const quern_model *m, const char *source, size_t len,
                                   const char *label, quern_error *err);
QUERN_API void quern_template_free(quern_template *t);
/* Where it is from, for messages: "the model's own", "the model's 'tool_use'", "built-in 'chatml'", a label.
 */
QUERN_API const char *quern_template_label(const quern_template *t);
QUERN_API const char *quern_template_source(const quern_template *t, size_t *len);
/* Whether the template reads a variable of this name anywhere: "enable_thinking", "tools". One that does not
 * has no such switch. */
QUERN_API bool quern_template_reads(const quern_template *t, const char *variable);
/* Names of the built-ins, in order, NULL behind the last; never freed. */
QUERN_API const char *const *quern_template_builtins(void);

/* Everything here is borrowed for the call. Text is bytes, UTF-8 by rights; malformed bytes pass through. */
typedef struct quern_message {
    const char *role;    /* "system", "user", "assistant", "tool", ... */
    const char *content; /* NULL: `fields` has it, or the message has none */
    size_t content_len;
    const char *fields; /* further members, a JSON object: {"reasoning_content": "...", "tool_calls": [...]};
                         * may be NULL */
    /* The tokens that content was generated as (without end token); may be NULL. Where the rendering has the
     * content whole, its ids are taken instead of tokenising the text again, so that the ids of a longer
     * conversation begin with those that the session holds. Ids whose text is not the content, and content
     * that the template changes or leaves out, are not an error: the text is tokenised. */
    const int32_t *ids;
    size_t n_ids;
} quern_message;

typedef struct quern_conversation {
    const quern_message *messages;
    size_t n_messages;
    const char *messages_json; /* a JSON list instead of `messages`; NULL: they count */
    const char *tools_json;    /* a JSON list; NULL: undefined in the template */
    const char *vars_json; /* a JSON object of further variables: {"enable_thinking": false}; may be NULL */
    bool add_generation_prompt;
    int64_t now; /* seconds since 1970 for strftime_now; 0: the clock's. Local time */
} quern_conversation;

/* A stretch of the text: the template's own words, or text that came from messages or tools (of whatever
 * part of them; a role that is a plain word counts as the template's). */
typedef struct quern_span {
    size_t len;
    bool message;
    const int32_t *ids; /* of the quern_message, borrowed from it; NULL: to be tokenised */
    size_t n_ids;
} quern_span;

typedef struct quern_rendering {
    char *text; /* malloc'ed, NUL behind */
    size_t len;
    quern_span *spans; /* malloc'ed; their lengths add up to len */
    size_t n_spans;
} quern_rendering;

/* What the template itself refuses (raise_exception) is an error with the template's text. Untrusted
 * templates are held to limits of steps, depth, memory and output; a limit met is an error that names it.
 * On failure *out is zeroed. */
QUERN_API int quern_template_render(const quern_template *t, const quern_conversation *c,
                                    quern_rendering *out, quern_error *err);
QUERN_API void quern_rendering_free(quern_rendering *r);

/* Ids of a rendering, malloc'ed. Control tokens are recognised in the template's words only: spelt out in a
 * message they stay text. The begin-of-text token is put in front where the model wants it and the template
 * has not written it; nothing is put behind. While message ids are borrowed, the messages must live. */
QUERN_API int quern_rendering_tokens(const quern_model *m, const quern_rendering *r, int32_t **ids, size_t *n,
                                     quern_error *err);

/* What takes time while a session is made: weights sent to a device (bytes), kernels compiled (their number).
 * Where neither is needed the function is not called. */
enum { QUERN_LOADING_WEIGHTS, QUERN_LOADING_KERNELS, QUERN_LOADING_CHOICES };
typedef void (*quern_loading_fn)(void *user, int what, uint64_t done, uint64_t total);

/* Thoughts, which some models write before an answer, between two tags. */
typedef struct quern_tags {
    const char *open, *close; /* "<think>", "</think>"; never freed */
} quern_tags;

/* The tags that a model thinks in: the first pair of known spellings that stands in its template, else the
 * first of which both are tokens of its vocabulary. Either of t, m may be NULL. Returns false where there is
 * none. */
QUERN_API bool quern_thinking_tags(const quern_template *t, const quern_model *m, quern_tags *tags);
/* Whether the text of a rendering ends in a thought that its template has opened. */
QUERN_API bool quern_rendering_thinks(const quern_rendering *r, const quern_tags *tags);
/* Ids of the control tokens that the tags are spelt with, for quern_generate_params.show. At most max are
 * stored; returns how many. */
QUERN_API size_t quern_tags_control(const quern_model *m, const quern_tags *tags, int32_t *ids, size_t max);

/* Parts a text that arrives in pieces. A thought is what stands before everything else, or at the beginning
 * where the prompt has opened it; tags, and white space beside them, belong to neither part. Later tags are
 * plain text. */
typedef enum quern_part { QUERN_PART_ANSWER, QUERN_PART_THOUGHT } quern_part;
typedef struct quern_splitter quern_splitter;
typedef void (*quern_part_fn)(void *user, quern_part part, const char *text, size_t len);

/* tags NULL: all is answer. */
QUERN_API int quern_splitter_new(quern_splitter **out, const quern_tags *tags, bool in_thought,
                                 quern_part_fn fn, void *user, quern_error *err);
QUERN_API void quern_splitter_free(quern_splitter *s);
/* Text that may be part of a tag, or white space before one, is held back until that is certain. */
QUERN_API int quern_splitter_feed(quern_splitter *s, const char *text, size_t len, quern_error *err);
/* Ends the text: what was held back comes out. */
QUERN_API void quern_splitter_flush(quern_splitter *s);
QUERN_API quern_part quern_splitter_part(const quern_splitter *s); /* that what comes next belongs to */

typedef enum quern_backend { QUERN_BACKEND_AUTO, QUERN_BACKEND_CPU, QUERN_BACKEND_CUDA } quern_backend;

/* Weights as 16-bit rows for the products of prompts, beside their own form: AUTO: where the card's memory
 * leaves room for the context; OFF: made for each use, beside the product before; SERIAL: between products.
 */
typedef enum quern_weight_cache {
    QUERN_WEIGHT_CACHE_AUTO,
    QUERN_WEIGHT_CACHE_ON,
    QUERN_WEIGHT_CACHE_OFF,
    QUERN_WEIGHT_CACHE_SERIAL,
} quern_weight_cache;

/* What computes the products of prompts. AUTO: cuBLASLt, or MMA where it is missing; MMA: own kernel with
 * 16-bit operands; MMQ: own kernel, quantised weights times 8-bit activations; WGMMA: own kernel of sm_90a,
 * which makes f16 of the weights in registers; FP8: cuBLASLt with operands of 8 bits (e4m3), which costs
 * accuracy, sm_89 and newer. */
typedef enum quern_prefill {
    QUERN_PREFILL_AUTO,
    QUERN_PREFILL_CUBLASLT,
    QUERN_PREFILL_MMA,
    QUERN_PREFILL_MMQ,
    QUERN_PREFILL_WGMMA,
    QUERN_PREFILL_FP8,
} quern_prefill;
/* How the KV cache stores keys or values: halves, or groups of 32 signed bytes with a half scale each (about
 * half the memory; heads of a multiple of 32 values; on a GPU sm_80 or newer). */
typedef enum quern_cache_type { QUERN_CACHE_F16, QUERN_CACHE_Q8_0 } quern_cache_type;

typedef struct quern_session_params {
    quern_backend backend;
    int device;
    int n_ubatch;    /* 0: 512 */
    int n_threads;   /* 0: all CPUs */
    bool exact;      /* CPU reference arithmetic: f32 throughout */
    int n_outputs;   /* most tokens of a chunk whose logits are kept (all_logits); 0: 64. More takes memory */
    int n_sequences; /* sequences that the session holds, each with the model's n_ctx positions; at most
                      * QUERN_MAX_SEQUENCES; 0: 1. See quern_session_select */
    quern_cache_type cache_type_k, cache_type_v;
    /* backend cuda */
    const char *cache;      /* folder of compiled kernels, "none", or NULL: the usual places */
    const char *kernel_src; /* replaces the embedded kernel sources; NULL: embedded */
    const char *variant;    /* "sm75", "sm80", "sm90a"; NULL: the card's best */
    bool f32_activations;   /* decode: f32 activations for quantised weights too, instead of 8-bit ones */
    bool no_fuse;           /* every step a kernel of its own */
    bool no_graph;          /* decode and prompts by direct launches instead of captured graphs */
    bool no_prompt_graph;   /* prompts by direct launches; decode by its graph */
    bool persistent;        /* decode as one launch a token whose blocks wait for each other */
    bool rows_apart;      /* several sequences, short prompts: each row goes through the weights by itself */
    bool plain_gemv;      /* decode: f16 and bf16 weights by the kernels of f32 ones */
    bool flash_attention; /* prompts: no keys and values by tensor copies, which sm_90a has for most heads */
    /* Prompts: keys and values by tensor copies, 128 query rows a block however short they are; an error
     * where there are no such copies (before sm_90a). */
    bool tma_attention;
    bool f32_products;    /* prompts: products as f32, not as f16, between the library and the next kernel */
    bool plain_attention; /* prompts through decode's f32 attention kernel, for bisecting */
    bool rows_attention;  /* decode's attention in f32 on the plain cores, not on the tensor cores */
    quern_weight_cache weight_cache;
    quern_prefill prefill;
    bool no_tune; /* nothing that was chosen by measuring: the library's first algorithm for each product,
                   * kernels as shipped. Otherwise several algorithms are timed at load, and choices that are
                   * kept serve */
    double
        tune_seconds; /* kernels of decode without a choice are measured at load for about so long; 0: none */
    quern_loading_fn loading; /* may be called by several threads at once; NULL: none */
    void *loading_user;
} quern_session_params;

/* A session owns KV caches for the model's n_ctx positions. What does not fit in memory is an error that says
 * how much does; where the model's n_ctx was the default, the session takes less instead and logs it. params
 * may be NULL. */
QUERN_API int quern_session_new(quern_session **out, const quern_model *m, const quern_session_params *params,
                                quern_error *err);
QUERN_API void quern_session_free(quern_session *s);
QUERN_API const char *quern_session_backend(const quern_session *s); /* "cpu", "cuda" */
QUERN_API int quern_session_length(const quern_session *s);          /* tokens held */
QUERN_API int quern_session_n_ctx(const quern_session *s);           /* tokens it can hold */

/* Appends n tokens (chunked inside). all_logits: logits of every one are kept, else only the last's. More
 * than the context holds is an error and appends nothing. */
QUERN_API int quern_session_append(quern_session *s, const int32_t *tokens, size_t n, bool all_logits,
                                   quern_error *err);
/* Logits [n_vocab] after token i of the last append (i < 0: counted from its end). NULL: not kept. */
QUERN_API const float *quern_session_logits(const quern_session *s, int i);
/* Keeps the first n tokens and forgets the rest; no logits are kept unless n is the length already. Tokens
 * are processed again where a windowed layer has lost what position n needs. */
QUERN_API int quern_session_truncate(quern_session *s, int n, quern_error *err);
/* The ids it holds, [quern_session_length]; valid until the session is used again. */
QUERN_API const int32_t *quern_session_tokens(const quern_session *s);
/* Makes the session hold exactly these n tokens (at least one), the last one's logits kept. Of their
 * beginning, what it holds already is not processed again (unless a windowed layer has lost what is needed);
 * *n_processed (may be NULL): how many were. More than the context holds is an error and changes nothing;
 * after another error the session holds what was done by then, a beginning of `tokens`. */
QUERN_API int quern_session_update(quern_session *s, const int32_t *tokens, size_t n, size_t *n_processed,
                                   quern_error *err);

/* Called while more than one token is processed, before every chunk and, on the CPU, every step: `done` of
 * `total` tokens of this call are complete. Return false to stop: the call fails, and the session keeps the
 * chunks that were complete. Must not use the session. NULL: none. */
typedef bool (*quern_progress_fn)(void *user, int done, int total);
QUERN_API void quern_session_on_progress(quern_session *s, quern_progress_fn fn, void *user);

/* Several sequences in one session: they share the weights, and each has a KV cache, a history and kept
 * logits of its own. Every function above speaks of the selected one (the first, until another is selected):
 *
 *     quern_session_params p = {.n_sequences = 4};          // and n_ctx of the model for each
 *     quern_session_new(&s, m, &p, &err);
 *     for (int i = 0; i < 4; i++) {
 *         quern_session_select(s, i, &err);
 *         quern_session_append(s, prompt[i], n[i], false, &err);
 *     }
 *     quern_generate_each(s, 4, (int[]){0, 1, 2, 3}, samplers, params, results, &err);
 *
 * One more token in each of n sequences costs little more than one in one sequence: the weights are read once
 * for all. */
#define QUERN_MAX_SEQUENCES 8

QUERN_API int quern_session_select(quern_session *s, int sequence, quern_error *err);
/* Appends tokens[i] to sequence sequences[i], n different ones, in one pass. The logits after each are kept:
 * quern_session_logits(s, -1) once it is selected. On failure no sequence has grown. The selection stays. */
QUERN_API int quern_session_append_each(quern_session *s, const int *sequences, const int32_t *tokens, int n,
                                        quern_error *err);

typedef struct quern_sampler_params {
    float temperature;    /* 0: greedy, lowest id on ties */
    int top_k;            /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off */
    int repeat_last_n;    /* window of the penalty; 0: off, -1: whole context */
    uint64_t seed;
} quern_sampler_params;

/* llama.cpp's defaults: 0.8, 40, 0.95, 0.05, 1.0, 64, seed 0. */
QUERN_API quern_sampler_params quern_sampler_defaults(void);
/* Out-of-range values are an error. */
QUERN_API int quern_sampler_new(quern_sampler **out, const quern_sampler_params *params, quern_error *err);
QUERN_API void quern_sampler_free(quern_sampler *s);
/* Chooses from logits [n_vocab]: penalties over `history` (all tokens so far, the last is newest), top-k,
 * top-p, min-p, temperature, then a draw with a counter-based generator keyed by (seed, n_history): equal
 * logits, history and seed give an equal token on any backend. NaN in the logits is an error. */
QUERN_API int quern_sample(quern_sampler *s, const float *logits, int n_vocab, const int32_t *history,
                           size_t n_history, int32_t *token, quern_error *err);

typedef struct quern_logprob {
    int32_t token;
    float logprob; /* natural logarithm of its probability */
} quern_logprob;

/* Log-probabilities of a row of logits [n_vocab] as the model gave it: log-softmax in double precision,
 * nothing penalised, filtered, masked or divided by a temperature. *chosen (may be NULL): that of `token`;
 * top[n_top], at most n_vocab (may be NULL for 0): the likeliest tokens, falling, the lowest id first among
 * equals. */
QUERN_API int quern_logprobs(const float *logits, int n_vocab, int32_t token, float *chosen,
                             quern_logprob *top, int n_top, quern_error *err);

typedef enum quern_stop {
    QUERN_STOP_END,    /* an end token */
    QUERN_STOP_STRING, /* a stop string */
    QUERN_STOP_LENGTH, /* n_predict or the context's end */
    QUERN_STOP_ABORT,  /* the callback asked to stop */
} quern_stop;

typedef struct quern_generate_params {
    int n_predict;           /* -1: until an end token or the context's end */
    const char *const *stop; /* stop strings */
    size_t n_stop;
    bool ignore_end;          /* end tokens are never sampled */
    const int32_t *extra_end; /* further end tokens */
    size_t n_extra_end;
    const int32_t *show; /* control tokens whose text belongs to the answer's; others have none */
    size_t n_show;
    /* Valid UTF-8 pieces as they become certain (len may be 0: a token whose text is held back). token: the
     * id just sampled. Return false to stop. May be NULL. */
    bool (*on_text)(void *user, const char *text, size_t len, int32_t token);
    void *user;
    /* In on_text, quern_session_logits(s, -1) are what `token` was chosen from (for quern_logprobs). Every
     * choice is then made on the host, also where the device could choose by itself. */
    bool keep_logits;
} quern_generate_params;

typedef struct quern_generate_result {
    quern_stop stop;
    size_t n_generated; /* tokens sampled, end token included */
    int32_t *tokens;    /* malloc'ed, n_generated */
    char *text;         /* malloc'ed, NUL-terminated */
    size_t text_len;
    double decode_seconds; /* sampling and the n_generated - 1 decode steps */
} quern_generate_result;

/* Generates after what the session holds (at least one token, with its logits kept), until prompt and answer
 * fill the context. The session then holds the answer but for the last token sampled; append something
 * before the next answer. Text is what the callback got: valid UTF-8, without end tokens, control tokens and
 * stop string. */
QUERN_API int quern_generate(quern_session *s, quern_sampler *sampler, const quern_generate_params *params,
                             quern_generate_result *result, quern_error *err);
/* The same in n different sequences at once, one token of each a pass. Sequence i has samplers[i], params[i]
 * and results[i]; an answer that ends leaves the others running, and each is what quern_generate would give
 * it (but for rounding: passes of several rows sum in another order). A callback is told of its own sequence
 * and must not use the session. decode_seconds is of the whole call in every result. On failure all results
 * are empty. The selection stays. */
QUERN_API int quern_generate_each(quern_session *s, int n, const int *sequences,
                                  quern_sampler *const *samplers, const quern_generate_params *params,
                                  quern_generate_result *results, quern_error *err);
QUERN_API void quern_generate_result_free(quern_generate_result *r);

#ifdef __cplusplus
}
#endif
#endif
