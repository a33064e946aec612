#!/usr/bin/env python3
"""Options as a whole: help, manual page, completion, environment, log file. test_cli_options.py QUERN [unittest arguments]."""
import re
import shutil
import subprocess

from cli_case import QUERN, CliCase, main, table


class Options(CliCase):
    """What --help lists is the same table that everything else is made from."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = subprocess.run([QUERN, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
        cls.commands = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
        cls.options = {}  # command: [(names, value, help)]
        for c in cls.commands:
            rows, text = [], subprocess.run([QUERN, c, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
            for m in re.finditer(r"^  (-[^\n]*?)(?:  +|\n +)([^ ][^\n]*(?:\n {30}[^\n]+)*)", text, re.M):
                words = m.group(1).split(", ")
                last, _, value = words[-1].partition(" ")
                rows.append((words[:-1] + [last], value, " ".join(m.group(2).split())))
            cls.options[c] = rows

    def test_tables_are_read(self):
        self.assertGreaterEqual(len(self.commands), 14)
        self.assertIn((["-n", "--predict", "--n-predict"], "N"), [row[:2] for row in self.options["run"]])
        for c in self.commands:
            self.assertIn(["-h", "--help"], [row[0] for row in self.options[c]], c)

    def test_names(self):
        """Every option has a long name, which its variable is made from, a help text, and no name twice in a command."""
        for c, rows in self.options.items():
            names = [n for row in rows for n in row[0]]
            self.assertEqual(len(names), len(set(names)), c)
            for row in rows:
                self.assertTrue(any(n.startswith("--") for n in row[0]), row)
                self.assertGreater(len(row[2]), 10, row)

    def test_defaults_are_said(self):
        for c in ("run", "bench", "perplexity", "profile"):
            for names, value, text in self.options[c]:
                if value == "N" or names[0] in ("--temp", "--top-p", "--min-p", "--repeat-penalty", "-o", "--backend"):
                    self.assertRegex(text, "Default", "%s %s" % (c, names))

    def test_man(self):
        r = self.quern("man")
        self.assertEqual((r.code, r.err), (0, ""))
        page = r.text.replace("\\-", "-")
        for c in self.commands:
            self.assertIn("\n.SS %s\n" % c, page)
            for names, value, text in self.options[c]:
                self.assertIn("\\fB%s\\fR%s\n" % (", ".join(names), " \\fI%s\\fR" % value if value else ""), page)
        for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ENVIRONMENT", "EXIT STATUS", "FILES"):
            self.assertIn("\n.SH %s\n" % heading, page)
        self.assertTrue(all(len(line) < 2000 for line in page.splitlines()))
        groff = shutil.which("groff")
        if groff:
            p = subprocess.run([groff, "-man", "-Tutf8", "-ww"], input=r.out, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual((p.returncode, p.stderr), (0, b""))

    def complete(self, *words):
        """What bash offers for the last word."""
        script = self.quern("completion", "bash").text
        line = "COMP_WORDS=(%s); COMP_CWORD=%d; _quern; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
            " ".join("'%s'" % w for w in words), len(words) - 1)
        p = subprocess.run(["bash", "-c", script + line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir)
        self.assertEqual(p.stderr, b"")
        return set(p.stdout.decode().split("\n")) - {""}

    def test_bash_completion(self):
        self.assertEqual(self.complete("quern", ""), set(self.commands) | {"--help", "--version"})
        self.assertEqual(self.complete("quern", "ben"), {"bench"})
        for c in self.commands:
            names = {n for row in self.options[c] for n in row[0]}
            self.assertEqual(self.complete("quern", c, "-"), names, c)
        self.assertEqual(self.complete("quern", "run", "--top"), {"--top-k", "--top-p"})
        self.assertEqual(self.complete("quern", "run", "--backend", ""), {"auto", "cpu", "cuda"})
        self.assertEqual(self.complete("quern", "run", "t.g"), {"t.gguf"})
        self.assertEqual(self.complete("quern", "run", "-m", "t."), {"t.gguf"})

    def test_other_completions(self):
        for shell in ("zsh", "fish"):
            r = self.quern("completion", shell)
            self.assertEqual((r.code, r.err), (0, ""))
            if shutil.which(shell):
                p = subprocess.run([shell, "-n", self.file("completion." + shell, r.out)], stderr=subprocess.PIPE)
                self.assertEqual((p.returncode, p.stderr), (0, b""))
            for c in self.commands:
                self.assertIn(c, r.text)
        for c in self.commands:  # r: fish
            lines = [line for line in r.text.splitlines() if "__fish_seen_subcommand_from %s'" % c in line]
            self.assertEqual(len(lines), sum(len(row[0]) for row in self.options[c]), c)
        zsh = shutil.which("zsh")
        if zsh:
            script = self.quern("completion", "zsh").text + "\nlist=; _quern_words run --backend; print -r -- ${=list}"
            p = subprocess.run([zsh, "-fc", "compdef() { }\n" + script], stdout=subprocess.PIPE)
            self.assertEqual(p.stdout.split(), [b"auto", b"cpu", b"cuda"])
        self.refuse(["bash", "zsh", "fish"], "completion", code=2)
        self.refuse(["'csh'"], "completion", "csh", code=2)

    def test_environment_of_every_option(self):
        """Each option's variable is known: none is called unread under -v, whatever command reads it."""
        names = {}
        for c in self.commands:
            for words, value, _ in self.options[c]:
                long = [w for w in words if w.startswith("--")][0]
                if long != "--help":
                    names["QUERN_" + long[2:].upper().replace("-", "_")] = ""  # empty: known and not set
        self.assertGreater(len(names), 50)
        r = self.quern("run", self.model, "-p", "A", "--temp", "0", "-v", env=dict(QUERN_NO_SUCH="1", **names))
        self.assertEqual(r.text, " Hello world!")
        self.assertEqual(re.findall(r"no option reads the variable (\S+)", r.err), ["QUERN_NO_SUCH"])

    def test_environment(self):
        run = ["run", self.model, "-p"]
        env = dict(QUERN_TEMP="0", QUERN_PREDICT="4", QUERN_QUIET="1")
        self.assertEqual(self.quern(*run, "C", env=env).text, "xyzx")
        self.assertEqual(self.quern(*run, "C", env=env).err, "")
        self.assertEqual(self.quern(*run, "C", "-n", "2", env=env).text, "xy")  # the command line wins
        self.assertIn("load", self.quern(*run, "C", "-v", env=env).err)
        self.assertEqual(self.quern("run", "-p", "A", env=dict(env, QUERN_MODEL=self.model)).text, " Hello world!")
        self.assertEqual(self.quern(*run, "A", env=dict(env, QUERN_MODEL="no-such")).text, " Hello world!")
        self.assertEqual(self.quern("run", "-m", self.model, "-p", "A", env=dict(env, QUERN_MODEL="no-such")).code, 0)
        self.assertEqual(self.quern(*run, "D", env=dict(env, QUERN_STOP="cS")).text, "ab")
        self.assertEqual(self.quern(*run, "D", "--stop", "OP", env=dict(env, QUERN_STOP="cS")).text, "abcST")
        self.assertEqual(self.quern(*run, "D", env=dict(env, QUERN_JSON="yes")).json["text"], "abcSTOPde")
        self.assertEqual(self.quern(*run, "D", env=dict(env, QUERN_JSON="0")).text, "abcSTOPde")
        self.assertEqual(self.quern(*run, "D", env=dict(env, QUERN_JSON="")).text, "abcSTOPde")
        self.assertEqual(self.quern(*run, "A\\n", "-n", "0", "--json", env=dict(env, QUERN_NO_ESCAPE="on")).json["n_prompt"], 4)
        sizes = self.quern("bench", self.model, "-n", "0", "-r", "1", "-o", "json", env=dict(env, QUERN_N_PROMPT="8,16"))
        self.assertEqual([t["n_prompt"] for t in sizes.json], [8, 16])
        for name, value in (("QUERN_TEMP", "hot"), ("QUERN_PREDICT", "x"), ("QUERN_BACKEND", "gpu"), ("QUERN_JSON", "maybe")):
            self.refuse([name, "'%s'" % value], *run, "A", env=dict(**{name: value}), code=2)
        r = self.quern(*run, "C", "-n", "2", "--debug", "options", env=dict(QUERN_TEMP="0", QUERN_PREDICT="4"))
        self.assertIn("[options] -n 2 (command line)", r.err)
        self.assertIn("[options] QUERN_TEMP=0 (environment)", r.err)
        self.assertIn("[options] QUERN_PREDICT=4 (environment; the command line wins)", r.err)

    def test_variables_that_are_no_options(self):
        r = self.quern("run", self.model, "-p", "A", "--temp", "0", "-v", env=dict(QUERN_TEPM="1"))
        self.assertIn("QUERN_TEPM (did you mean QUERN_TEMP?)", r.err)
        self.assertNotIn("QUERN_TEPM", self.answer("-p", "A", env=dict(QUERN_TEPM="1")).err)

    def test_log_file(self):
        log = self.path("log")
        self.expect(" Hello world!", "-p", "A", "-q", "--log-file", log)
        with open(log) as f:
            first = f.read()
        for words in ("load ", "decode ", "end tokens: 2 '</s>'", "KV cache"):  # as under -v
            self.assertRegex(first, r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} .*" + re.escape(words))
        r = self.quern("run", self.model, "-p", "C" * 64, "--log-file", log)
        self.assertEqual(r.code, 1)
        with open(log) as f:
            whole = f.read()
        self.assertTrue(whole.startswith(first))
        self.assertIn("error: the prompt has 65 tokens", whole)
        self.refuse(["--log-file", "/no/such"], "run", self.model, "-p", "A", "--log-file", "/no/such/file")

    def test_log_file_on_a_full_disk(self):
        """Said once, with status 1; the answer is whole, whatever its form."""
        full = ["--log-file", "/dev/full"]
        for extra in ([], ["-v"], ["-q"], ["--json"], ["--debug", "all"]):
            r = self.answer("-p", "A", *full, *extra)
            self.assertEqual(r.code, 1, extra)
            self.assertEqual(r.json["text"] if "--json" in extra else r.text, " Hello world!")
            errors = re.findall("quern: error: .*", r.err)
            self.assertEqual(errors, ["quern: error: --log-file /dev/full: No space left on device; nothing more is written there"])
        r = self.quern("run", self.model, "-p", "C" * 64, *full)
        self.assertEqual(r.code, 1)
        self.assertIn("error: the prompt has 65 tokens", r.err)  # the other error is not lost
        r = self.quern("bench", self.model, "-p", "4", "-n", "0", "-r", "1", "-o", "json", *full)
        self.assertEqual((r.code, len(r.json)), (1, 1))

    def test_debug(self):
        for topic in ("options", "engine", "prompt", "chunks", "tokens", "all"):
            self.expect(" Hello world!", "-p", "A", "--debug", topic)
        self.assertIn("[prompt] %d 'A'" % table.ID["A"], self.expect("", "-n", "0", "-p", "A", "--debug", "prompt").err)
        self.refuse(["'promt'", "'prompt'", "tokens"], "run", self.model, "-p", "A", "--debug", "tokens,promt", code=2)

    def test_unsupported_by_name(self):
        for args, word in ((["-ngl", "99"], "--backend"), (["--lora", "x.gguf"], "adapters"), (["--grammar=x"], "grammar"),
                           (["-md", "x.gguf"], "speculative"), (["-hf", "a/b"], "downloaded"), (["--mmproj", "x"], "text models"),
                           (["-ts", "1,1"], "whole"), (["--prompt-cache", "x"], "--prompts"), (["-j", "{}"], "schema"),
                           (["--mirostat", "2"], "samplers"), (["-fa"], "attention"), (["--embedding"], "embeddings")):
            self.refuse(["option '%s' is not supported" % args[0].split("=")[0], word], "run", self.model, *args, code=2)
        for name, word in (("serve", "server"), ("pull", "downloaded"), ("show", "quern info"), ("quantize", "read")):
            self.refuse(["command '%s' is not supported" % name, word], name, code=2)


if __name__ == "__main__":
    main()
