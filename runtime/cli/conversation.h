/* conversation.h: the messages of a chat, and files of them. */
#ifndef QN_CLI_CONVERSATION_H
#define QN_CLI_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qn_chat_role { QN_CHAT_SYSTEM, QN_CHAT_USER, QN_CHAT_ASSISTANT, QN_CHAT_N_ROLES } qn_chat_role;

typedef struct qn_turn {
    qn_chat_role role;
    char *content; /* any bytes, a NUL behind */
    size_t len;
    char *thought; /* what went before an answer; NULL: nothing */
    size_t thought_len;
    int32_t *ids; /* that the content was generated as; NULL: unknown */
    size_t n_ids;
} qn_turn;

/* A system message is the first one or not there. Zero-initialised. */
typedef struct qn_conversation {
    qn_turn *turns;
    size_t n, cap;
} qn_conversation;

const char *qn_chat_role_name(qn_chat_role role);

/* Adds a message; the text is copied. 0, or -1 after printing the error. */
int qn_conversation_add(qn_conversation *c, qn_chat_role role, const char *text, size_t len);
/* Adds an answer and takes its members (malloc'ed, or NULL), also where that fails. */
int qn_conversation_take(qn_conversation *c, qn_turn *turn);
/* Drops messages from index n on. */
void qn_conversation_cut(qn_conversation *c, size_t n);
void qn_conversation_free(qn_conversation *c);

/* The system message; NULL: none. */
const qn_turn *qn_conversation_system(const qn_conversation *c);
/* Sets it; NULL removes it. 0, or -1 after printing the error. */
int qn_conversation_set_system(qn_conversation *c, const char *text, size_t len);

/* The file as a JSON list of messages, written whole or not at all. A file that is there already is replaced
 * only where it holds such a list. 0, or -1 after printing the error. */
int qn_conversation_save(const qn_conversation *c, const char *path);
/* Reads such a list, or an object with it as "messages", into an empty *c. 0, or -1 after printing the error
 * (*c stays empty). */
int qn_conversation_load(qn_conversation *c, const char *path);

#endif
