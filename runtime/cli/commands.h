/* commands.h: entry points of the command files, for the table in commands.c. */
#ifndef QN_CLI_COMMANDS_H
#define QN_CLI_COMMANDS_H

#include "cli/cli.h"

int qn_cmd_run(int argc, char **argv);
int qn_cmd_chat(int argc, char **argv);
int qn_cmd_info(int argc, char **argv);
int qn_cmd_plan(int argc, char **argv);
int qn_cmd_check(int argc, char **argv);
int qn_cmd_draft(int argc, char **argv);
int qn_cmd_ptx(int argc, char **argv);
int qn_cmd_logits(int argc, char **argv);
int qn_cmd_perplexity(int argc, char **argv);
int qn_cmd_tokenize(int argc, char **argv);
int qn_cmd_detokenize(int argc, char **argv);
int qn_cmd_template(int argc, char **argv);
int qn_cmd_bench(int argc, char **argv);
int qn_cmd_profile(int argc, char **argv);
int qn_cmd_tune(int argc, char **argv);
int qn_cmd_doctor(int argc, char **argv);
int qn_cmd_cache(int argc, char **argv);
int qn_cmd_man(int argc, char **argv);
int qn_cmd_completion(int argc, char **argv);

#endif
