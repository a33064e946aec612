#!/usr/bin/env python3
"""quern chat: test_chat.py QUERN [unittest arguments]. The models are lookup tables (make_table_model.py): the last token of a
prompt decides the answer, so "A" is answered by " Hello world!"."""
import json
import os
import re
import signal
import subprocess
import sys
import tarfile

from cli_case import DATA, HANG, QUERN, CliCase, main, read, table
from terminal import Terminal

HELLO = " Hello world!"
TEMPLATE = """{%- for m in messages -%}
{%- if m.role == 'system' -%}{{ 'K' + m.content + '<|note|>' }}
{%- elif m.role == 'user' -%}{{ m.content }}
{%- else -%}{{ m.content }}{{ '<|eot|>' }}
{%- endif -%}
{%- endfor -%}
"""
NO_SYSTEM = "{%- if messages[0].role == 'system' -%}{{ raise_exception('no system here') }}{%- endif -%}" + TEMPLATE
THINKING = TEMPLATE + """{%- if add_generation_prompt and enable_thinking is defined -%}
{{ '<think>' if enable_thinking else '<think></think>' }}
{%- endif -%}
"""
TAGS_ONLY = TEMPLATE + "{#- <think> </think> -#}"
ALWAYS = TEMPLATE + "{%- if add_generation_prompt -%}{{ '<think>' }}{%- endif -%}{#- </think> -#}"
STATS = re.compile(r"prompt (\d+) tokens, (\d+) processed .* answer (\d+) tokens .* stop: (\w+); context (\d+) of (\d+)")


class ChatCase(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, source in (("plain", TEMPLATE), ("no-system", NO_SYSTEM), ("thinking", THINKING), ("tags", TAGS_ONLY),
                             ("always", ALWAYS)):
            cls.file(name + ".jinja", source.encode())

    @classmethod
    def chat_model(cls, name="plain", template="plain", *args):
        return cls.table("chat-" + name, "--chat-template", cls.path(template + ".jinja"), *args)

    @classmethod
    def long_model(cls):
        return cls.chat_model("long", "plain", "--context", "100000")

    @classmethod
    def think_model(cls, template="thinking"):
        return cls.chat_model("think-" + template, template, "--think")

    def command(self, *args, model=None, greedy=True):
        return [QUERN, "chat", model or self.chat_model(), "--backend", "cpu"] + (["--temp", "0"] if greedy else []) + \
            [str(a) for a in args]

    def pipe(self, lines, *args, code=0, model=None, greedy=True, **kw):
        """A chat whose stdin is a pipe with these lines."""
        data = lines if isinstance(lines, bytes) else "".join(line + "\n" for line in lines).encode()
        r = self.quern(*self.command(*args, model=model, greedy=greedy)[1:], stdin=data, **kw)
        self.assertEqual(r.code, code, r.err)
        self.assertNotIn(b"\x1b", r.out + r.err_bytes)
        return r

    def stats(self, r):
        """(prompt tokens, processed, answer tokens, stop, context, of) of each turn."""
        return [tuple(int(x) if x.isdigit() else x for x in m) for m in STATS.findall(r.err)]


class Pipe(ChatCase):
    def test_turns_go_on_from_the_session(self):
        r = self.pipe(["A", "B", "A"], "-v")
        self.assertEqual(r.text, HELLO + "\n\U0001F600é日本\n" + HELLO + "\n")
        # <s> A; ... Hello world ! <|eot|> B; ... 4 bytes, 2 words, <|eot|> A
        self.assertEqual(self.stats(r), [(2, 2, 4, "end", 5, 64), (7, 2, 7, "end", 13, 64), (15, 2, 4, "end", 18, 64)])

    def test_deterministic(self):
        """Every turn is processed from the beginning."""
        r = self.pipe(["A", "B", "A"], "-v", "--deterministic")
        self.assertEqual(r.text, HELLO + "\n\U0001F600é日本\n" + HELLO + "\n")
        self.assertEqual([s[:2] for s in self.stats(r)], [(2, 2), (7, 7), (15, 15)])

    def test_each_line_is_a_message(self):
        self.assertEqual(self.pipe([]).text, "")
        self.assertEqual(self.pipe(b"A\r\n\r\nB\r\n").text, HELLO + "\n\U0001F600é日本\n")
        self.assertEqual(self.pipe(b"A").text, HELLO + "\n")
        self.assertEqual(self.pipe(b"\n  \nA\n\n").text, HELLO + "\n")
        self.assertEqual(self.pipe(["E"]).text, "\n")  # an empty answer has its line too
        self.assertEqual(self.pipe(["//A"]).text, HELLO + "\n")
        self.assertEqual(self.pipe(["J"]).out, b"\0there\n")

    def test_slow_lines(self):
        """Answers come while the input stays open, and lines in pieces are lines."""
        p = subprocess.Popen(self.command("-q"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for piece, answer in ((b"A\n", HELLO), (b"", None), (b"x", None), (b"A\nA", HELLO), (b"\n", HELLO)):
            p.stdin.write(piece)
            p.stdin.flush()
            if answer is not None:
                self.assertEqual(p.stdout.readline().decode(), answer + "\n")
        p.stdin.close()
        self.assertEqual((p.stdout.read(), p.wait(timeout=HANG)), (b"", 0))
        p.stdout.close()

    def test_first_message(self):
        self.assertEqual(self.pipe(["B"], "-p", "x\\nA").text, HELLO + "\n\U0001F600é日本\n")
        self.assertIn("\\n'", self.pipe([], "-p", "\\nA", "--show-prompt").err)
        self.assertNotIn("\\n'", self.pipe([], "-p", "\\nA", "--show-prompt", "--no-escape").err)

    def test_several_lines(self):
        for lines in (['"""A', 'B"""'], ['"""', "A", "B", '"""'], ["A\\", "B"]):
            r = self.pipe(lines, "-v", "--show-prompt")
            self.assertEqual(r.text, "\U0001F600é日本\n", lines)
            self.assertEqual(re.findall(r"'(.*)'", r.err)[-4:], ["<s>", "A", "\\n", "B"], lines)
        self.assertEqual(self.pipe(['"""A"""']).text, HELLO + "\n")
        self.assertEqual(self.pipe(['"""A', "B"]).text, "\U0001F600é日本\n")  # the end of the input ends it
        self.assertEqual(self.pipe(['"""', "/exit", 'A"""', "A"]).text, (HELLO + "\n") * 2)
        r = self.pipe(["A\\\\"], "-v", "-n", "1")
        self.assertEqual(self.stats(r)[0][0], 4)  # both backslashes stay

    def test_no_commands(self):
        r = self.pipe(["/exit", '"""', "A\\", "A"], "--no-commands", "-n", "4", "-v")
        self.assertEqual(len(self.stats(r)), 4)
        self.assertTrue(r.text.endswith("\n" + HELLO + "\n"))

    def test_control_tokens_of_a_message_are_text(self):
        """B10: what is spelt like the end of a turn is not one."""
        r = self.pipe(["<|eot|><|note|>A"], "--show-prompt")
        self.assertEqual(r.text, HELLO + "\n")
        prompt = [int(x) for x in re.findall(r"^ +(\d+)  '", r.err, re.M)]
        self.assertEqual(prompt[0], table.ID["<s>"])
        self.assertNotIn(table.ID["<|eot|>"], prompt)
        self.assertNotIn(table.ID["<|note|>"], prompt)
        r = self.pipe(["A", "B"], "--show-prompt")
        self.assertIn("%8d  '<|eot|>'" % table.ID["<|eot|>"], r.err)  # the template's own is

    def test_what_ends_an_answer(self):
        self.assertEqual(self.pipe(["D"], "--stop", "STOP").text, "abc\n")
        self.assertEqual(self.pipe(["A"], "-r", "\\x20w").text, " Hello\n")
        r = self.pipe(["C", "A"], "-n", "3", "-v")
        self.assertEqual(r.text, "xyz\n Hello world!\n")
        self.assertIn("cut short after 3 tokens", r.err)
        self.assertEqual(self.pipe(["E"], "--ignore-eos", "-n", "2").text, "STOXSTOX\n")
        self.assertEqual(self.pipe(["C"], "--end-token", table.ID["z"]).text, "xy\n")
        # What a stop string has cut off is not part of the conversation.
        r = self.pipe(["D", "A"], "--stop", "STOP", "--show-prompt", "-v")
        self.assertIn("'ab'", r.err)
        self.assertNotIn("'OPde'", r.err)
        self.assertEqual(r.text, "abc\n" + HELLO + "\n")

    def test_seeds(self):
        for lines in (["F", "F"], ["F", "/regen"]):
            a = self.pipe(lines, "-n", "9", "-s", "5", greedy=False)
            self.assertEqual(a.text, self.pipe(lines, "-n", "9", "-s", "5", greedy=False).text)
            self.assertIn("seed 5", a.err)
            first, second = a.text.split("\n")[:2]
            self.assertNotEqual(first, second)
        random = self.pipe(["F"], "-n", "9", greedy=False)
        seed = re.search(r"seed (\d+)", random.err)[1]
        self.assertEqual(random.text, self.pipe(["F"], "-n", "9", "-s", seed, greedy=False).text)

    def test_regen(self):
        r = self.pipe(["B", "A", "/regen", "/regen"], "-v")
        self.assertEqual(r.text, "\U0001F600é日本\n" + (HELLO + "\n") * 3)
        self.assertEqual([s[:2] for s in self.stats(r)], [(2, 2), (10, 2), (10, 1), (10, 1)])
        self.assertIn("no message to answer", self.pipe(["/regen"], code=1).err)

    def test_clear(self):
        r = self.pipe(["A", "/clear", "A"], "-v")
        self.assertEqual([s[:2] for s in self.stats(r)], [(2, 2), (2, 1)])
        r = self.pipe(["A", "/clear", "A"], "-v", "-sys", "B")
        self.assertEqual([s[:2] for s in self.stats(r)], [(5, 5), (5, 1)])  # <s> K B <|note|> A

    def test_system(self):
        """K and <|note|> are the template's, B the message's."""
        self.file("sys.txt", b"B\n")
        for args, lines in ((["-sys", "B"], ["A"]), (["-sysf", self.path("sys.txt")], ["A"]), ([], ["/system B", "A"]),
                            (["-sys", "C"], ["/system B", "A"]), (["--system-prompt", "B"], ["A"])):
            r = self.pipe(lines, "--show-prompt", *args)
            self.assertEqual(re.findall(r"^ +\d+  '(.*)'", r.err, re.M), ["<s>", "K", "B", "<|note|>", "A"])
        r = self.pipe(["/system", "/system B C", "/system", '/system ""', "/system", "A"], "-v")
        self.assertEqual(r.err.count("(no system message)"), 2)
        self.assertIn("\nB C\n", r.err)
        self.assertEqual(self.stats(r)[0][0], 2)
        r = self.pipe(["A", "/system B", "A"], "-v")  # in the middle of a chat: all of it is read again
        self.assertEqual(self.stats(r)[1][:2], (10, 9))
        self.refuse(["one of them"], "chat", self.chat_model(), "-sys", "a", "-sysf", "b", code=2)
        self.refuse(["nowhere.txt"], *self.command("-sysf", self.path("nowhere.txt"))[1:])

    def test_template_without_system(self):
        """B15: its text goes in front of the first message, and that is said."""
        model = self.chat_model("no-system", "no-system")
        r = self.pipe(["A", "A"], "-sys", "B", "--show-prompt", "-v", model=model)
        self.assertIn("goes in front of the first message", r.err)
        self.assertEqual(r.text, (HELLO + "\n") * 2)
        self.assertIn("prompt: 5 tokens", r.err)
        self.assertEqual(re.findall(r"^ +\d+  '(.*)'", r.err, re.M)[:5], ["<s>", "B", "\\n", "\\n", "A"])
        self.assertEqual([s[:2] for s in self.stats(r)], [(5, 5), (10, 2)])

    def test_params(self):
        r = self.pipe(["/params", "/params temp 0.5 top_k=7 think off", "/params seed 12 predict 3 temp 0", "C"], code=0)
        self.assertEqual(r.text, "xyz\n")
        for words in ("temp            0\n", "temp            0.5\n", "top-k           7\n", "seed            12\n",
                      "predict         3\n", "think           off\n", "think           (the template's own)\n",
                      "repeat-last-n   64\n", "min-p           0.05\n"):
            self.assertIn("  " + words, r.err)
        for bad, words in (("temp hot", "'hot'"), ("temp -1", "temperature"), ("tmep 1", "'temp'"), ("top-k", "needs a value"),
                           ("top-p 2", "top"), ("seed x", "'x'"), ("predict 1.5", "'1.5'"), ("think maybe", "'maybe'"),
                           ("repeat-penalty 0", "repeat penalty"), ("temp nan", "'nan'"), ("top-k 99999999999", "99999999999")):
            self.assertIn(words, self.pipe(["/params " + bad, "A"], code=1).err)
        r = self.pipe(["/params temp 0.25 top-k -3"], code=1)
        self.assertEqual(r.text, "")

    def test_commands(self):
        r = self.pipe(["/help", "/?", "/exit", "A"], "-q")
        self.assertEqual(r.text, "")
        for name in ("/clear", "/regen", "/system", "/save", "/load", "/params", "/help", "/exit", '"""', "Ctrl-C"):
            self.assertIn(name, r.err)
        for line in ("/quit", "/bye", "/exit  "):
            self.assertEqual(self.pipe([line, "A"]).text, "")
        for line, words in (("/claer", "/clear"), ("/xyzzyxyzzy", "no command /xyzzyxyzzy"), ("/", "no command"),
                            ("/clear all", "takes no argument"), ("/save", "needs a file"), ("/load  ", "needs a file"),
                            ("/etc/passwd", "// begins")):
            r = self.pipe(["A", line, "A"], code=1)
            self.assertIn(words, r.err)
            self.assertEqual(r.text, HELLO + "\n")  # the first failure ends a chat without a terminal

    def test_saved_and_loaded(self):
        path = self.path("saved talk.json")
        r = self.pipe(["A", "B", "J", "/save " + path], "-sys", "né\\n\\x07")
        said = ["n\u00e9\n\a", "A", HELLO, "B", "\U0001F600é日本", "J", "\0there"]
        roles = ["system"] + ["user", "assistant"] * 3
        self.assertEqual(json.loads(read(path)), [{"role": a, "content": b} for a, b in zip(roles, said)])
        self.assertIn("7 messages written", r.err)
        again = self.path("again.json")
        r = self.pipe(["B", "/load " + path, "/save " + again, "A"], "-v")
        self.assertEqual(read(path), read(again))
        self.assertEqual(r.text, "\U0001F600é日本\n" + HELLO + "\n")
        self.assertGreater(self.stats(r)[-1][0], 20)
        self.assertEqual(os.listdir(self.dir).count("saved talk.json"), 1)
        self.assertFalse([f for f in os.listdir(self.dir) if f.startswith("saved talk.json.")])
        self.assertIn("no messages", self.pipe(["/save " + again], code=1).err)

    def test_load_with_an_open_message(self):
        path = self.file("open.json", b'{"messages": [{"role": "user", "content": "B"}, {"role": "assistant", "content": "x"}, '
                         b'{"content": "A", "role": "user"}]}')
        self.assertEqual(self.pipe(["/load " + path, "/regen"]).text, HELLO + "\n")
        r = self.pipe(["/load " + path, "B", "/save " + self.path("replaced.json")])
        self.assertEqual([m["content"] for m in json.loads(read(self.path("replaced.json")))],
                         ["B", "x", "B", "\U0001F600é日本"])
        self.assertIn("/regen answers", r.err)

    def test_files_that_are_no_conversation(self):
        good = b'[{"role": "user", "content": "A"}]'
        os.mkfifo(self.path("fifo.json"))
        os.mkdir(self.path("dir.json"))
        cases = [(b"", "not JSON"), (good[:-1], "not JSON"), (good + b"x", "not JSON"), (b"[]", "not a list of messages"),
                 (b"{}", "not a list of messages"), (b'"x"', "not"), (b"null", "not"), (b"[1]", "message 0 is not an object"),
                 (b'[{"role": "user"}]', "no content"), (b'[{"content": "x"}]', "role"),
                 (b'[{"role": "tool", "content": "x"}]', "role is none"), (b'[{"role": "user", "content": 1}]', "not a string"),
                 (b'[{"role": "user", "content": null}]', "not a string"), (good[:-1] + b", " + b'{"role": "system", "content": "x"}]',
                                                                           "message 1: a system"),
                 (b'[{"role": "user", "content": "x", "tool_calls": []}]', "'tool_calls'"),
                 (b'[{"role": "user", "role": "user", "content": "x"}]', "duplicate"),
                 (b'[{"role": "us\\u0000er", "content": "x"}]', "role is none"),
                 (b'[{"role": "user", "content": "\xff"}]', "0xff"), (b"[" * 100000, "not JSON"),
                 (b'{"messages": {}}', "not a list")]
        for i, (data, words) in enumerate(cases):
            path = self.file("bad-%d.json" % i, data)
            r = self.pipe(["/load " + path], code=1)
            error = [line for line in r.err.splitlines() if "error" in line]
            self.assertEqual(len(error), 1, data[:80])
            self.assertIn(path, error[0])
            self.assertIn(words, error[0], data[:80])
            self.assertLess(len(error[0]), 600)
        for name, words in (("fifo.json", "not a regular file"), ("dir.json", "not a regular file"), ("no.json", "No such file")):
            self.assertIn(words, self.pipe(["/load " + self.path(name)], code=1).err)
        for name, words in (("fifo.json", "not a saved conversation"), ("dir.json", "not a saved conversation"),
                            ("bad-4.json", "not a saved conversation"), ("none/x.json", "No such file")):
            path = self.path(name)
            self.assertIn(words, self.pipe(["A", "/save " + path], code=1).err)
        self.assertEqual(read(self.path("bad-4.json")), b"{}")
        path = self.file("replace.json", good)
        self.pipe(["B", "/save " + path])
        self.assertEqual(len(json.loads(read(path))), 2)
        model = self.chat_model()
        before = read(model)
        self.pipe(["A", "/save " + model], code=1)
        self.assertEqual(read(model), before)

    def test_loading_what_the_template_refuses_changes_nothing(self):
        path = self.file("system.json", b'[{"role": "system", "content": "B"}, {"role": "user", "content": "A"}]')
        self.file("strict.jinja", b"{%- for m in messages -%}{%- if m.content == 'A' and loop.length > 2 -%}"
                  b"{{ raise_exception('three are too many') }}{%- endif -%}{{ m.content }}{%- endfor -%}")
        three = self.file("three.json", b'[{"role": "user", "content": "A"}, {"role": "assistant", "content": "A"}, '
                          b'{"role": "user", "content": "A"}]')
        model = self.chat_model("strict", "strict")
        r = self.pipe(["/load " + three], code=1, model=model)
        self.assertIn("three are too many", r.err)
        self.assertEqual(self.pipe(["/load " + path, "/regen"]).text, HELLO + "\n")

    def test_full_context(self):
        """B30: an answer that meets the end, a message that does not fit; nothing is lost, nothing shifted."""
        path = self.path("full.json")
        r = self.pipe(["C", "/save " + path], "-v")
        self.assertEqual(r.text, "xyz" * 20 + "xy\n")
        self.assertIn("context of 64 tokens is full", r.err)
        self.assertIn("/save FILE", r.err)
        self.assertEqual(json.loads(read(path))[1]["content"], "xyz" * 20 + "xy")
        r = self.pipe(["C", "A"], "-v", code=1)
        self.assertIn("the conversation has 66 tokens, the context holds 64", r.err)
        self.assertEqual(self.pipe(["/load " + path, "A"], "-c", "200").text, HELLO + "\n")
        self.assertIn("has 64 tokens", self.pipe(["C" * 63], code=1).err)
        r = self.pipe(["C" * 62], "-v")
        self.assertEqual((r.text, self.stats(r)[0][2]), ("x\n", 1))

    def test_errors_of_the_model(self):
        nan = self.chat_model("nan", "plain", "--nan")
        r = self.pipe(["L", "A"], model=nan, code=1)
        self.assertEqual(r.text, "")
        self.assertIn("NaN", r.err)
        ids = self.chat_model("ids", "plain", "--no-tokenizer")
        self.refuse(["tokenizer"], *self.command(model=ids)[1:])
        self.refuse(["nowhere.gguf"], *self.command(model=self.path("nowhere.gguf"))[1:])
        self.refuse(["no model"], "chat", code=2)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            r = self.quern(*self.command()[1:], stdin=b"A\nA\n", stdout=full)
        self.assertEqual(r.code, 1)
        self.assertIn("cannot write", r.err)

    def test_interrupted(self):
        """Without a terminal Ctrl-C ends the command, during an answer and between them; what was said is out."""
        for line in (b"C\n", b""):
            p = subprocess.Popen(self.command("-c", "0", model=self.long_model()), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
            p.stdin.write(b"A\n" + line)
            p.stdin.flush()
            self.assertEqual(p.stdout.readline().decode(), HELLO + "\n")
            if line:  # the answer is longer than the pipe: it has not ended
                self.assertEqual(p.stdout.read(3), b"xyz")
            p.send_signal(signal.SIGINT)
            rest = p.stdout.read()
            self.assertEqual(p.wait(timeout=HANG), 130)
            if line:
                self.assertEqual(rest.rstrip(b"\n"), (b"xyz" * len(rest))[:len(rest.rstrip(b"\n"))])
            for f in (p.stdin, p.stdout, p.stderr):
                f.close()


class Thinking(ChatCase):
    """Q is answered by a thought "hm so" and Hello world."""

    def think(self, line, *args, template="thinking", **kw):
        return self.pipe([line], *args, model=self.think_model(template), **kw)

    def test_opened_by_the_model(self):
        for template in ("thinking", "tags", "plain"):  # in the last the vocabulary alone tells
            self.assertEqual(self.think("Q", template=template).text, "<think>\nhmso\n</think>\n\nHello world!\n")

    def test_modes(self):
        shown, hidden = "<think>\nhmso\n</think>\n\nHello world!\n", "Hello world!\n"
        self.assertEqual(self.think("B", "--think", "on").text, shown)  # opened by the template
        self.assertEqual(self.think("B", "--think", "hide").text, hidden)
        self.assertEqual(self.think("Q", "--think", "hide").text, hidden)
        self.assertEqual(self.think("B", "--think", "off").text, HELLO + "\n")
        self.assertEqual(self.think("B").text, "\U0001F600é日本\n")
        r = self.think("B", "--think", "off", "--show-prompt")
        self.assertEqual(re.findall(r"^ +\d+  '(.*)'", r.err, re.M), ["<s>", "B", "<think>", "</think>"])
        self.assertEqual(self.think("B", template="always").text, shown)

    def test_off_without_a_switch(self):
        r = self.think("B", "--think", "off", template="always")
        self.assertEqual(r.text, "B\U0001F600é日本\n")  # a newline ends what was put in
        self.assertIn("no switch", r.err)
        self.assertEqual(self.think("Q", "--think", "off", template="tags").text, "B\U0001F600é日本\n")

    def test_budget(self):
        after = "\n</think>\n\nB\U0001F600é日本\n"
        self.assertEqual(self.think("B", "--think-budget", "1", template="always").text, "<think>\nhm" + after)
        self.assertEqual(self.think("B", "--think-budget", "0", template="always").text, "B\U0001F600é日本\n")
        self.assertEqual(self.think("Q", "--think-budget", "1").text, "<think>\nhm" + after)
        self.assertEqual(self.think("Q", "--think-budget", "2").text, "<think>\nhmso" + after)
        self.assertEqual(self.think("Q", "--think-budget", "3").text, "<think>\nhmso\n</think>\n\nHello world!\n")

    def test_earlier_thoughts_are_left_out(self):
        path = self.path("thoughts.json")
        r = self.pipe(["Q", "A", "/save " + path], "-v", "--show-prompt", model=self.think_model())
        self.assertEqual(json.loads(read(path))[1], {"role": "assistant", "content": "Hello world!", "reasoning_content": "hmso"})
        last = r.err[r.err.rindex("quern: prompt: "):]
        self.assertNotIn("hm", re.findall(r"'(.*)'", last))
        r = self.pipe(["/load " + path, "/save " + self.path("thoughts2.json"), "A"], model=self.think_model())
        self.assertEqual(read(path), read(self.path("thoughts2.json")))

    def test_models_that_do_not_think(self):
        for args in (["--think", "on"], ["--think-budget", "5"]):
            r = self.pipe(["A"], *args)
            self.assertEqual(r.text, HELLO + "\n")
            self.assertIn("no effect", r.err)
        for args in (["--think", "off"], ["--think", "hide"]):
            r = self.pipe(["A"], *args)
            self.assertEqual(r.text, HELLO + "\n")
            self.assertNotIn("no effect", r.err)
        self.refuse(["on, off, hide"], "chat", self.chat_model(), "--think", "maybe", code=2)


class Vendors(ChatCase):
    """B16: templates as vendors ship them, in the mouth of the lookup table."""
    TAGS = {"Qwen-Qwen3-0.6B": "<think>", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "<think>",
            "ByteDance-Seed-OSS": "<seed:think>", "Apertus-8B-Instruct": "<|inner_prefix|>",
            "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "<|START_THINKING|>",
            "google-gemma-4-31B-it": "<|channel>thought", "HuggingFaceTB-SmolLM3-3B": "<think>",
            "ibm-granite-granite-3.3-2B-Instruct": "<think>", "unsloth-Apriel-1.5": "<thinking>",
            "Qwen-Qwen2.5-7B-Instruct": "none known", "google-gemma-2-2b-it": "none known",
            "meta-llama-Llama-3.1-8B-Instruct": "none known", "microsoft-Phi-3.5-mini-instruct": "none known"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tarfile.open(os.path.join(DATA, "templates", "vendors.tar.xz")) as tar:
            for member in tar.getmembers():
                if member.isfile() and member.name.endswith(".jinja"):
                    cls.file("vendor-" + os.path.basename(member.name), tar.extractfile(member).read())

    def ask(self, vendor, *args, lines=("A",), model=("wide", "plain", "--context", "4000"), **kw):
        return self.pipe(lines, "--chat-template", self.path("vendor-%s.jinja" % vendor), "--show-prompt", "-v", "-n", "1", *args,
                         model=self.chat_model(*model), **kw)

    def prompt(self, *args, **kw):
        r = self.ask(*args, **kw)
        shown = r.err[r.err.rindex("quern: prompt: "):]
        return "".join(re.findall(r"^ +\d+  '(.*)'$", shown, re.M)), r

    def test_tags(self):
        for vendor, tag in self.TAGS.items():
            self.assertIn("thoughts: %s" % tag, self.ask(vendor, lines=()).err, vendor)

    def test_switches(self):
        for vendor, how, end in (("Qwen-Qwen3-0.6B", "on", "<|im_start|>assistant\\n"),
                                 ("Qwen-Qwen3-0.6B", "hide", "<|im_start|>assistant\\n"),
                                 ("Qwen-Qwen3-0.6B", "off", "<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n"),
                                 ("HuggingFaceTB-SmolLM3-3B", "off", "<think>\\n\\n</think>\\n"),
                                 ("deepseek-ai-DeepSeek-V3.1", "on", "<think>"),
                                 ("deepseek-ai-DeepSeek-V3.1", "off", "</think>"),
                                 ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "on", "<think>\\n"),
                                 ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "off", "<think>\\n\\n</think>\\n\\n")):
            text, r = self.prompt(vendor, "--think", how, model=("wide-think", "plain", "--context", "4000", "--think"))
            self.assertTrue(text.endswith(end), (vendor, how, text))
            self.assertEqual("<think>" in r.text, end in ("<think>", "<think>\\n"), (vendor, how, r.text))

    def test_budget_of_the_template(self):
        text, _ = self.prompt("ByteDance-Seed-OSS", "--think-budget", "512")
        self.assertIn("512", text)
        text, _ = self.prompt("ByteDance-Seed-OSS")
        self.assertNotIn("512", text)

    def test_variables_of_the_user_win(self):
        text, _ = self.prompt("Qwen-Qwen3-0.6B", "--think", "on", "--var", "enable_thinking=false")
        self.assertTrue(text.endswith("</think>\\n\\n"))

    def test_refusals(self):
        """B15: what a template refuses is said in its words; Gemma has no system turn."""
        text, r = self.prompt("google-gemma-2-2b-it", "-sys", "Be brief.")
        self.assertIn("<start_of_turn>user\\nBe brief.\\n\\nA<end_of_turn>", text)
        self.assertIn("goes in front of the first message", r.err)
        two = self.file("two.json", b'[{"role": "user", "content": "A"}, {"role": "user", "content": "A"}]')
        r = self.ask("google-gemma-2-2b-it", lines=["/load " + two, "A"], code=1)
        self.assertIn("must alternate", r.err)


class AtTerminal(ChatCase):
    def open(self, *args, model=None, **kw):
        model = model or self.chat_model("wide", "plain", "--context", "4000")
        t = Terminal(self.command(*args, model=model), **kw)
        self.addCleanup(t.close)
        t.wait_for("> ")
        return t

    def leave(self, t, how="/exit\n"):
        t.send(how)
        self.assertEqual(t.code(), 0, t.screen)
        self.assertTrue(t.restored)

    def say(self, t, line, answer):
        t.send(line + "\n")
        t.wait_for(answer + "\n")
        t.wait_for("> ")

    def test_turns(self):
        t = self.open("-v")
        self.assertIn("/help lists the commands", t.screen)
        self.say(t, "A", HELLO)
        self.say(t, "B", "\U0001F600é日本")
        self.assertEqual([s[:2] for s in STATS.findall(t.screen)], [("2", "2"), ("7", "2")])
        t.send("\n")
        t.wait_for("> ")
        t.send("/claer\n")
        self.assertIn("did you mean /clear?", t.wait_for("\n> "))  # and the chat goes on
        t.send("/help\n")
        t.wait_for("/params")
        self.leave(t)

    def test_first_message(self):
        t = Terminal(self.command("-p", "A"))
        self.addCleanup(t.close)
        self.assertIn("> A\n" + HELLO + "\n", t.wait_for("\n> ") + t.wait_for("\n> "))
        self.leave(t)

    def test_editing(self):
        t = self.open()
        for keys in ("AB\x7f", "xA\x01\x1b[C\x08", "A\x1b[D\x1b[C", "BA\x02\x02\x04", "foo\x15A", "日\x7fA", "A\x1b[D日\x08",
                     "x y\x17\x17A"):
            self.say(t, keys, HELLO)
        self.say(t, "日本é\x7f\x7f\x7fB", "\U0001F600é日本")
        self.leave(t)

    def test_history(self):
        t = self.open()
        self.say(t, "A", HELLO)
        self.say(t, "B", "\U0001F600é日本")
        self.say(t, "\x1b[A\x1b[A", HELLO)
        self.say(t, "\x10\x10", "\U0001F600é日本")
        self.say(t, "\x12B", "\U0001F600é日本")
        self.leave(t)

    def test_history_file(self):
        path = self.path("history")
        t = self.open("--history", path)
        self.say(t, "A", HELLO)
        self.say(t, "xé\\\\ B", "\U0001F600é日本")
        self.leave(t)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        t = self.open("--history", path)
        self.say(t, "\x1b[A\x1b[A\x1b[A", HELLO)  # /exit is a line too
        self.assertIn("xé\\\\ B", t.screen)
        self.leave(t)
        self.file("foreign", b"something else\n")
        t = Terminal(self.command("--history", self.path("foreign")))
        self.addCleanup(t.close)
        self.assertEqual(t.code(), 1)
        self.assertIn("not a file of lines", t.screen)
        self.assertEqual(read(self.path("foreign")), b"something else\n")
        self.assertTrue(t.restored)

    def test_several_lines(self):
        t = self.open()
        t.send('"""A\n')
        t.wait_for("... ")
        self.say(t, 'B"""', "\U0001F600é日本")
        t.send("B\\\n")
        t.wait_for("... ")
        self.say(t, "A", HELLO)
        t.send('"""A\n')
        t.wait_for("... ")
        t.send("\x03")  # the whole message is given up
        t.wait_for("once more")
        t.wait_for("> ")
        self.say(t, "B", "\U0001F600é日本")
        t.send('"""A\n')
        t.wait_for("... ")
        t.send("\x04")
        self.assertIn(HELLO, t.wait_for("\n> "))
        self.leave(t)

    def test_pasted_lines_are_one_message(self):
        t = self.open("--show-prompt")
        t.send("\x1b[200~B\nC\r\tA\x1b[201~")
        t.wait_for("␤C␤ A")
        t.send("\n")
        shown = t.wait_for("\n> ")
        self.assertIn(HELLO, shown)
        self.assertEqual(re.findall(r"^ +\d+  '(.*)'", shown, re.M), ["<s>", "B", "\\n", "C", "\\n", "\u0020", "A"])
        self.leave(t)

    def test_interrupt_at_the_prompt(self):
        t = self.open()
        t.send("foo")
        t.wait_for("foo")
        t.send("\x03")
        self.assertIn("once more", t.wait_for("\n> "))
        self.say(t, "A", HELLO)
        t.send("\x03")
        self.assertIn("once more", t.wait_for("\n> "))
        t.send("x")
        t.wait_for("x")
        t.send("\x03")  # something was typed: this one clears
        t.wait_for("\n> ")
        self.assertIsNone(t.p.poll())
        t.send("\x03")
        self.assertEqual(t.code(), 0)
        self.assertTrue(t.restored)

    def test_end_of_input(self):
        t = self.open()
        self.leave(t, "\x04")
        t = self.open()
        self.say(t, "A", HELLO)
        self.leave(t, "\x04")
        t = self.open()
        t.send("A\x04")  # not on an empty line
        t.send("\n")
        self.assertIn(HELLO, t.wait_for("\n> "))
        self.leave(t, "\x04")

    def test_typed_ahead(self):
        """Keys pressed before the prompt is there are not lost, and Ctrl-D then does nothing."""
        t = Terminal(self.command(model=self.chat_model("wide", "plain", "--context", "4000")))
        self.addCleanup(t.close)
        t.send("B\nx\x04")
        t.wait_for("\U0001F600é日本\n")
        t.wait_for("> x")
        t.send("A\n")
        t.wait_for(HELLO)
        self.leave(t)

    def test_interrupted_answer(self):
        path = self.path("stopped.json")
        t = self.open("-c", "0", "-v", model=self.long_model())
        self.say(t, "A", HELLO)
        t.send("C\n")
        t.wait_for("xyzxyzxyz")
        t.send("\x03")
        t.wait_for("stopped; the answer so far is kept")
        t.wait_for("\n> ")
        self.say(t, "B", "\U0001F600é日本")
        stats = [tuple(map(int, s[:3])) for s in STATS.findall(t.screen)]
        self.assertGreaterEqual(stats[1][2], 9)  # what was waited for; the key may take effect right behind it
        # The next prompt goes on behind the partial answer: its last token, the end of turn, and the message.
        self.assertEqual(stats[2][:2], (stats[1][0] + stats[1][2] + 2, 3))
        t.send("/save %s\n" % path)
        t.wait_for("\n> ")
        partial = json.loads(read(path))[3]["content"]
        self.assertEqual(partial, ("xyz" * stats[1][2])[:stats[1][2]])
        self.leave(t)

    def test_interrupted_prompt(self):
        """Reading a long prompt stops soon, the message waits, and what was read need not be read again."""
        path = self.file("long.json", json.dumps([{"role": "user", "content": "x" * 400000 + "A"}]).encode())  # minutes
        t = self.open("-c", "0", "-v", model=self.chat_model("huge", "plain", "--context", "500000"))
        t.send("/load %s\n" % path)
        t.wait_for("messages read")
        t.wait_for("> ")
        t.send("/regen\n")
        t.wait_for("prompt: ")
        t.send("\x03")
        t.wait_for("stopped before the answer began")
        t.wait_for("> ")
        self.say(t, "A", HELLO)
        self.assertEqual(STATS.findall(t.screen)[-1][0], "2")  # it has replaced the long one
        self.leave(t)

    def test_interrupted_thought(self):
        """The colour of thoughts ends with them."""
        t = self.open("--think", "on", model=self.think_model())
        t.send("B\n")
        t.wait_for("Hello world!")
        t.wait_for("\n> ")
        self.assertEqual(t.raw.count(b"\x1b[2m"), 1)
        self.assertLess(t.raw.index(b"\x1b[2m"), t.raw.index(b"hm"))
        self.assertLess(t.raw.index(b"</think>"), t.raw.index(b"\x1b[0m"))
        self.leave(t)
        t = self.open("--think", "on", "-n", "1", model=self.think_model())
        t.send("B\n")
        t.wait_for("cut short")
        t.wait_for("> ")
        self.assertEqual((t.raw.count(b"\x1b[2m"), t.raw.count(b"\x1b[0m")), (1, 1))
        self.leave(t)

    def test_full_context(self):
        t = self.open("-c", "64")
        t.send("C\n")
        t.wait_for("context of 64 tokens is full")
        t.wait_for("> ")
        t.send("A\n")
        t.wait_for("has 66 tokens")
        t.wait_for("> ")
        path = self.path("terminal.json")
        t.send("/save %s\n" % path)
        t.wait_for("3 messages written")  # the message that did not fit as well
        t.wait_for("> ")
        t.send("/clear\n")
        t.wait_for("> ")
        self.say(t, "A", HELLO)
        self.leave(t)

    def test_ended_by_signals(self):
        for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            t = self.open()
            t.wait_mode(editing=True)
            t.send("half a li")
            t.wait_for("half a li")
            t.signal(sig)
            self.assertEqual(t.code(), -sig)
            self.assertTrue(t.restored)
        t = self.open("-c", "0", model=self.long_model())
        t.send("C\n")
        t.wait_for("xyz")
        self.assertTrue(t.restored)  # while it answers nothing is changed
        t.signal(signal.SIGTERM)
        self.assertEqual(t.code(), -signal.SIGTERM)
        self.assertTrue(t.restored)

    def test_stopped_and_continued(self):
        """Ctrl-Z as under a shell, which is what this small program is for it."""
        shell = ("import os, signal, sys\n"
                 "pid = os.fork()\n"
                 "if pid == 0:\n"
                 "    os.setpgid(0, 0)\n"
                 "    signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n"
                 "    os.tcsetpgrp(0, os.getpid())\n"
                 "    signal.signal(signal.SIGTTOU, signal.SIG_DFL)\n"
                 "    os.execv(sys.argv[1], sys.argv[1:])\n"
                 "status = 0x7f\n"
                 "while status & 0x7f == 0x7f:\n"
                 "    os.write(2, b'[job %d]' % pid)\n"
                 "    _, status = os.waitpid(pid, os.WUNTRACED)\n"
                 "sys.exit(os.WEXITSTATUS(status))\n")
        with Terminal([sys.executable, "-c", shell] + self.command()) as t:
            t.wait_for("[job ")
            job = int(t.wait_for("]")[:-1])
            t.wait_for("\n> ")
            def tell():
                t.send("\x1a")

            def force():
                os.kill(job, signal.SIGSTOP)

            for stop in (tell, force):
                t.send("x")
                t.wait_for("x")
                stop()
                t.wait_for("[job ")
                self.assertEqual(t.restored, stop is tell)
                os.kill(job, signal.SIGCONT)
                t.wait_for("x")  # the line is drawn again
                self.assertFalse(t.restored)
                t.send("A\n")
                t.wait_for(HELLO)
                t.wait_for("> ")
            t.send("\x04")
            self.assertEqual(t.code(), 0)
            self.assertTrue(t.restored)

    def test_resized(self):
        t = self.open()
        t.send("x" * 60)
        t.wait_for("x" * 60)
        t.resize(10, 20)
        t.send("x")
        t.wait_for("x")
        t.resize(50, 200)
        t.send("A\n")
        self.assertIn(HELLO, t.wait_for("\n> "))
        self.leave(t)

    def test_plain_terminal(self):
        for term in ("dumb", ""):
            t = self.open("--think", "on", term=term, model=self.think_model())
            t.send("A\n")
            t.wait_for("hmso")
            t.wait_for("> ")
            t.send("\x04")
            self.assertEqual(t.code(), 0)
            self.assertTrue(t.restored)
            self.assertNotIn(b"\x1b", t.raw[t.raw.index(b"/help"):])
        t = self.open("--think", "on", env={"NO_COLOR": "1"}, model=self.think_model())
        self.say(t, "A", "hmso")
        self.assertNotIn(b"\x1b[2m", t.raw)
        self.leave(t)

    def test_output_to_a_file(self):
        path = self.path("answers.txt")
        with open(path, "wb") as out:
            t = self.open("--think", "on", model=self.think_model(), stdout=out)
            t.send("A\n")
            t.wait_for("> ")
            t.send("/exit\n")
            self.assertEqual(t.code(), 0)
        self.assertEqual(read(path).decode(), "<think>\nhmso\n</think>\n\nHello world!\n")
        self.assertTrue(t.restored)

    def test_input_from_a_pipe(self):
        """Output at a terminal, input not: lines as they come, nothing is drawn but the answers."""
        t = Terminal(self.command("-q"), stdin=subprocess.PIPE)
        self.addCleanup(t.close)
        t.p.stdin.write(b"A\nB\n")
        t.p.stdin.close()
        self.assertEqual(t.code(), 0)
        self.assertEqual(t.raw.replace(b"\r", b"").decode(), HELLO + "\n\U0001F600é日本\n")


if __name__ == "__main__":
    main()
