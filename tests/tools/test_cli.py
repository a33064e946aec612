#!/usr/bin/env python3
"""Drive the binary: test_cli.py QUERN [unittest arguments]. Models come from make_table_model.py, so every answer is known."""
import array
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import time

from cli_case import HANG, QUERN, CliCase, main, read, table

EMOJI = "\U0001F600"


class CliTest(CliCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, args in (("no-bos", ["--no-bos"]), ("prefix", ["--space-prefix"]), ("nan", ["--nan"]), ("ids", ["--no-tokenizer"]),
                           ("vocab", ["--vocab-only"]), ("alien", ["--arch", "alien"]), ("long", ["--context", "100000"]),
                           ("odd-text", ["--tokenizer", "sesquipedalian"])):
            cls.table(name, *args)


class Front(CliTest):
    def test_help(self):
        for args in (["--help"], ["help"], ["-h"]):
            r = self.quern(*args)
            self.assertEqual((r.code, r.err), (0, ""))
            for word in ("Generate:", "  run ", "  bench "):
                self.assertIn(word, r.text)
        self.assertEqual(self.quern().code, 2)

    def test_every_command_has_help(self):
        commands = [line.split()[0] for line in self.quern("--help").text.splitlines() if line.startswith("  ")]
        self.assertGreaterEqual(len(commands), 6)
        for c in commands:
            r = self.quern(c, "--help")
            self.assertEqual((r.code, r.err), (0, ""), c)
            self.assertIn("Usage: quern " + c, r.text)
            self.assertEqual(self.quern("help", c).out, r.out)

    def test_version(self):
        self.assertRegex(self.quern("--version").text, r"^quern \d+\.\d+\.\d+\n$")

    def test_unknown(self):
        self.refuse(["'rnu'", "'run'"], "rnu", code=2)
        self.refuse(["'frobnicate'"], "frobnicate", code=2)
        self.refuse(["'--tmep'", "'--temp'"], "run", self.model, "--tmep", "1", code=2)
        self.refuse(["'--top_k'", "'--top-k'"], "run", self.model, "--top_k=1", code=2)
        self.refuse(["'-ubb'"], "run", self.model, "-ubb", "1", code=2)
        self.refuse(["'--qqqqqqqqqq'"], "run", self.model, "--qqqqqqqqqq", code=2)

    def test_names_are_spelt_out(self):
        for words, args in ((["'-ngl'"], ["-ngl", "99"]), (["'-fa'"], ["-fa"]), (["'-n5'"], ["-n5"]), (["'--jso'"], ["--jso"]),
                            (["'-te'"], ["-te", "1"]), (["'--top'"], ["--top", "1"]), (["'-qn'"], ["-qn", "5"]),
                            (["'-qz'"], ["-p", "A", "-qz"]), (["'-qzv'"], ["-p", "A", "-qzv"]), (["'-p=A'"], ["-p=A"]),
                            (["--temp needs a value (T)"], ["--temp"]), (["-n needs a value (N)"], ["-n"]),
                            (["--json takes no value"], ["--json=1"]), (["-ub: 'x'"], ["-ub=x"])):
            self.refuse(words, "run", self.model, *args, code=2)
        self.refuse(["'-p'"], "plan", self.model, "-p", "512", code=2)
        self.expect(" Hello world!", "-p", "A", "-ub=7")
        self.assertIn("end tokens", self.expect(" Hello world!", "-p", "A", "--ubatch-size", "7", "-qv").err)
        self.assertEqual(self.answer("-p", "-q", "--json", "-n", "0").json["n_prompt"], 3)
        r = self.quern("run", "--", "-m")
        self.assertEqual(r.code, 1)
        self.assertIn("-m", r.err)

    def test_bad_values(self):
        for args in (["--temp", "hot"], ["--temp", "-1"], ["--temp", "nan"], ["--top-k", "-1"], ["--top-p", "1.1"],
                     ["--min-p", "-0.1"], ["-n", "-2"], ["-n", "1.5"], ["-n", ""], ["--repeat-last-n", "-2"], ["-t", "0"],
                     ["-s", "x"], ["-s", "-2"], ["-s", "18446744073709551616"], ["--backend", "gpu"],
                     ["--special", "maybe"], ["-c", "99999999999"], ["--temp"], ["--json=1"], ["-m", self.model],
                     ["another", "one"], ["--end-token", "1,x"], ["--device", "-1"]):
            self.refuse([], "run", self.model, "-p", "A", *args, code=2)
        for args, words in ((["-c", "4000000000"], "-c: 4000000000 is too large, the most is 2147483647;"),
                            (["-n", "9" * 30], "-n: %s is too large, the most is 2147483647;" % ("9" * 30)),
                            (["--temp", "1e12"], "--temp: 1e12 is too large"), (["--top-p", "1.5"], "--top-p: '1.5' is not a number in 0..1;"),
                            (["-t", "x"], "-t: 'x' is not a whole number in 1..4096;")):
            self.refuse([words], "run", self.model, "-p", "A", *args, code=2)
        self.refuse(["no model"], "run", "-p", "A", code=2)

    def test_bad_values_are_told_before_a_model_is_read(self):
        none = self.path("none.gguf")
        for command in (["run", none, "-p", "A", "--chat"], ["chat", none]):
            for args, words in ((["--repeat-penalty", "0"], "--repeat-penalty: 0 is not"), (["--repeat-penalty", "-1"], "--repeat-penalty: -1"),
                                (["--repeat-penalty", "1e39"], "--repeat-penalty: inf"), (["--stop", ""], "--stop: an empty text"),
                                (["--stop", "x", "--stop", "\\x00"], "--stop: an empty text"), (["--var", "x"], "--var: 'x' is not NAME=VALUE"),
                                (["--var", "=1"], "--var: '=1' is not NAME=VALUE"), (["--chat-template-kwargs", "[1]"], "not a JSON object"),
                                (["--chat-template-kwargs", "{"], "--chat-template-kwargs: "), (["-sys", "a", "-sysf", "b"], "-sys and -sysf")):
                self.refuse([words], *command, *args, code=2)
        self.refuse(["--var: 'x'"], "template", none, "--messages", none, "--var", "x", code=2)

    def test_draft_replaces_nothing(self):
        path = self.path("drafted.yaml")
        self.assertEqual(self.quern("draft", self.model, "-o", path).code, 0)
        drafted = self.quern("draft", self.model).out
        self.assertEqual(read(path), drafted)
        self.file("drafted.yaml", b"my own work\n")
        self.refuse(["drafted.yaml", "is there already"], "draft", self.model, "-o", path)
        self.assertEqual(read(path), b"my own work\n")
        os.symlink(self.path("nowhere"), self.path("link.yaml"))
        self.refuse(["link.yaml", "is there already"], "draft", self.model, "-o", self.path("link.yaml"))
        self.assertFalse(os.path.exists(self.path("nowhere")))
        self.assertEqual(self.quern("draft", self.model, "-o", "/dev/stdout").out, drafted)



class Run(CliTest):
    def test_answers(self):
        self.expect(" Hello world!", "-p", "A")
        self.expect("abcSTOPde", "-p", "D")
        self.expect("there", "-p", "H")
        self.expect("", "-p", "E")
        r = self.quern("run", "-m", self.model, "-p", "A", "--temp=0", "-q")
        self.assertEqual((r.code, r.text, r.err), (0, " Hello world!", ""))
        r = self.quern("run", "-p", "A", "--temp", "0", "--", self.model)
        self.assertEqual(r.text, " Hello world!")

    def test_end_token_is_not_printed_and_said(self):
        self.assertIn("stop: end (token 2) after 4 tokens", self.expect(" Hello world!", "-p", "A").err)
        self.assertIn("stop: end (token 3) after 1 tokens", self.expect("", "-p", "E").err)
        err = self.expect(" Hello world!", "-p", "A", "-v").err
        self.assertIn("end tokens: 2 '</s>' 3 '<|eot|>'", err)
        self.expect("STOXSTOX", "-p", "E", "--ignore-eos", "-n", "2")
        self.expect("xy", "-p", "C", "--end-token", str(table.ID["z"]))
        self.expect("x", "-p", "C", "--eos-token-id", "%d,%d" % (table.ID["z"], table.ID["y"]))

    def test_utf8(self):
        whole = EMOJI + "é日本"
        self.expect(whole, "-p", "B")
        self.expect(whole, "-p", "B", "--no-stream")
        self.expect("\ufffd", "-p", "B", "-n", "3")
        self.expect("\ufffd", "-p", "G")
        self.expect("\ufffdthere", "-p", "I")
        self.expect("\0there", "-p", "J")

    def test_stream_comes_in_pieces(self):
        """The emoji is written at once, although it took four tokens; nothing waits for the end."""
        master, slave = pty.openpty()
        p = subprocess.Popen([QUERN, "run", self.path("long.gguf"), "-p", "C", "--temp", "0", "-c", "100000", "-q"],
                             stdin=subprocess.DEVNULL, stdout=slave)
        os.close(slave)
        self.assertTrue(os.read(master, 100).startswith(b"x"))
        self.assertIsNone(p.poll())
        p.kill()
        p.wait()
        os.close(master)

    def test_stop_strings(self):
        self.assertIn("stop: string", self.expect("abc", "-p", "D", "--stop", "STOP").err)
        self.expect("abcSTOPde", "-p", "D", "--stop", "STOY")
        self.expect("ab", "-p", "D", "--stop", "zz", "--stop", "cS")
        self.expect("ab", "-p", "D", "-r", "cS")
        self.expect(" Hello", "-p", "A", "--stop=\\x20w")
        self.expect("", "-p", "B", "--stop", EMOJI)

    def test_lengths(self):
        self.assertIn("stop: length after 0 tokens", self.expect("", "-p", "C", "-n", "0").err)
        self.expect("xyzxy", "-p", "C", "-n", "5")
        r = self.expect("xyz" * 20 + "xy", "-p", "C", "-n", "-1")
        self.assertIn("stop: length after 62 tokens", r.err)  # 2 + 62 = 64
        self.expect("xyz" * 2, "-p", "C", "-c", "8")
        self.expect("", "-p", "C" * 7, "-c", "8")
        self.refuse(["65 tokens", "64"], "run", self.model, "-p", "C" * 64)
        self.refuse(["9 tokens", "8"], "run", self.model, "-p", "C" * 8, "-c", "8")

    def test_context(self):
        long = self.path("long.gguf")
        self.assertIn("context 4096 of 100000 trained", self.expect(" Hello world!", "-p", "A", model=long).err)
        self.assertIn("context 100000 of", self.expect(" Hello world!", "-p", "A", "-c", "0", model=long).err)
        self.assertIn("more than the 64", self.expect(" Hello world!", "-p", "A", "-c", "65").err)
        line = self.refuse(["2147483647", "available", "largest context that fits"], "run", self.model, "-p", "A", "-c",
                           "2147483647")
        self.assertRegex(line, r"weights .* KV cache .* scratch")

    def test_empty_prompt(self):
        no_bos = self.path("no-bos.gguf")
        for args, stdin in ((["-p", ""], b""), (["-f", self.file("empty", b"")], b""), ([], b""), (["-f", "-"], b"\n")):
            self.assertEqual(self.answer(*args, stdin=stdin).text, " Hi")
            self.refuse(["empty prompt"], "run", no_bos, *args, stdin=stdin)
            self.assertEqual(self.answer(*args, stdin=stdin, model=self.path("prefix.gguf")).text, "Hi")
        self.assertEqual(self.answer("-p", " ", model=no_bos, stdin=b"").code, 0)

    def test_where_the_prompt_comes_from(self):
        a = self.file("a", b"A\n")
        self.expect(" Hello world!", "-f", a)
        self.expect(" Hello world!", "-f", "-", stdin=b"A")
        self.expect(" Hello world!", stdin=b"A\n")
        self.assertEqual(self.expect("abcSTOPde", "-p", "xD", stdin=b"A").text, "abcSTOPde")  # -p: stdin is not read
        self.assertIn("prompt: 4 tokens", self.expect(" Hello world!", "-p", "xy", "-f", a, "--show-prompt").err)
        self.expect(" Hello world!", "-p", "x", "-f", "-", stdin=b"A")
        self.refuse(["no-such-file"], "run", self.model, "-f", "no-such-file")
        self.refuse(["directory"], "run", self.model, "-f", self.dir)

    def test_stdin_that_stays_open_does_not_hang(self):
        r, w = os.pipe()
        p = subprocess.run([QUERN, "run", self.model, "-p", "A", "--temp", "0", "-q"], stdin=r, stdout=subprocess.PIPE,
                           timeout=HANG)
        os.close(r)
        os.close(w)
        self.assertEqual(p.stdout, b" Hello world!")

    def test_never_interactive(self):
        master, slave = pty.openpty()
        p = subprocess.run([QUERN, "run", self.model], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=HANG)
        os.close(master)
        os.close(slave)
        self.assertEqual((p.returncode, p.stdout), (2, b""))
        self.assertIn(b"no prompt", p.stderr)

    def prompt_ids(self, *args):
        return self.answer("--json", "-n", "0", *args).json["prompt_ids"]

    def test_escapes(self):
        n, back = table.ID["\n"], table.ID["\\"]
        self.assertEqual(self.prompt_ids("-p", "\\n"), [1, n])
        self.assertEqual(self.prompt_ids("-p", "\\x41\\\\n"), [1, table.ID["A"], back, table.ID["n"]])
        self.assertEqual(self.prompt_ids("-p", "\\n", "--no-escape"), [1, back, table.ID["n"]])
        self.assertEqual(self.prompt_ids("-f", self.file("esc", b"\\n")), [1, back, table.ID["n"]])
        self.assertEqual(self.prompt_ids("-p", "A\\"), [1, table.ID["A"], back])
        self.assertEqual(self.prompt_ids("-p", "\\q"), self.prompt_ids("-p", "\\\\q"))

    def test_special_tokens_in_the_prompt(self):
        self.assertEqual(self.prompt_ids("-p", "A<|eot|>"), [1, table.ID["A"], 3])
        self.assertGreater(len(self.prompt_ids("-p", "A<|eot|>", "--special", "off")), 3)
        self.assertEqual(self.prompt_ids("-p", "A", "--special=on"), [1, table.ID["A"]])

    def test_show_prompt(self):
        err = self.expect("", "-p", "A\\n", "--verbose-prompt", "-n", "0").err
        self.assertRegex(err, r"1  '<s>'\n +%d  'A'\n +%d  '\\n'\n" % (table.ID["A"], table.ID["\n"]))

    def test_seed(self):
        args = ["run", self.model, "-p", "F", "--temp", "1", "-n", "50"]
        first = self.quern(*args)
        seed = [line.split()[-1] for line in first.err.splitlines() if line.startswith("quern: seed ")][0]
        again = self.quern(*args, "-s", seed)
        self.assertEqual(first.text, again.text)
        self.assertEqual(len(first.text), 50)
        self.assertEqual(self.quern(*args, "-s", "-1", "-q").err, "")
        other = [self.quern(*args, "-s", str(s)).text for s in (1, 2, 2**64 - 1)]
        self.assertEqual(len(set(other)), 3)
        self.assertEqual(self.quern(*args, "-s", "5", "--top-k", "1").text, "0" * 50)
        self.assertEqual(set(self.quern(*args, "-s", "5", "--top-k", "2").text), set("01"))
        self.assertEqual(self.quern(*args, "-s", "5", "-t", "1").text, self.quern(*args, "-s", "5", "--exact").text)
        self.assertNotIn("seed", self.expect("0" * 9, "-p", "F", "-n", "9").err)  # greedy: no draw, no seed

    def test_repeat_penalty(self):
        self.assertEqual(self.answer("-p", "F", "-n", "5", "--repeat-penalty", "1.05").text, "01000")
        self.expect("00000", "-p", "F", "-n", "5", "--repeat-penalty", "1.05", "--repeat-last-n", "0")

    def test_json(self):
        r = self.answer("-p", "B", "--json", "-s", str(2**64 - 1))
        j = r.json
        self.assertEqual(r.out.count(b"\n"), 1)
        self.assertEqual(j["text"], EMOJI + "é日本")
        self.assertEqual(j["stop"], "end")
        self.assertEqual(j["prompt_ids"], [1, table.ID["B"]])
        self.assertEqual(j["ids"], [table.ID[table.byte(b)] for b in table.EMOJI] +
                         [table.ID["é"], table.ID["日本"], 2])
        self.assertEqual((j["n_prompt"], j["n_generated"], j["seed"]), (2, 7, str(2**64 - 1)))
        self.assertEqual((j["backend"], j["architecture"], j["n_ctx"], j["exact"]), ("cpu", "llama", 64, False))
        for key in ("load_seconds", "prompt_seconds", "decode_seconds", "peak_memory_bytes"):
            self.assertGreater(j[key], 0)
        self.assertEqual(self.answer("-p", "J", "--json").json["text"], "\0there")
        self.assertEqual(self.answer("-p", "D", "--json", "--stop", "STOP").json["stop"], "string")
        self.assertEqual(self.answer("-p", "C", "--json").json["stop"], "length")
        self.refuse(["empty prompt"], "run", self.path("no-bos.gguf"), "-p", "", "--json")

    def test_statistics(self):
        err = self.expect(" Hello world!", "-p", "A").err
        for words in ("load ", "prompt ", "decode ", " t/s", "peak memory"):
            self.assertIn(words, err)
        self.assertEqual(self.expect(" Hello world!", "-p", "A", "-q").err, "")

    def test_chunks_do_not_change_the_answer(self):
        text = "CCCCCCCCCCCCCCCCCCCCA"
        for n in ("1", "7", "64", "512"):
            self.expect(" Hello world!", "-p", text, "-ub", n)
            self.expect(" Hello world!", "-p", text, "-b", n, "--exact")

    def test_backend(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no device, with or without a GPU in this machine
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        self.refuse(["backend cuda", "CUDA"], "run", self.model, "-p", "A", "--backend", "cuda")
        self.assertIn("backend cpu: ", self.expect(" Hello world!", "-p", "A", "--backend", "auto").err)
        self.assertNotIn("CUDA", self.expect(" Hello world!", "-p", "A", "--backend", "cpu").err)
        self.assertIn("--device 1", self.expect(" Hello world!", "-p", "A", "--backend", "cpu", "--device", "1").err)

    def test_interrupt(self):
        """What was handed over is out; the answer is longer than the pipe, so it cannot have ended."""
        p = self.start("run", self.path("long.gguf"), "-p", "C", "--temp", "0", "-c", "100000", "-q", stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE)
        text = p.stdout.read(300)
        p.send_signal(signal.SIGINT)
        text += p.stdout.read()  # communicate() would pass over what read() has buffered
        self.assertEqual(p.wait(timeout=HANG), 130)
        p.stdout.close()
        self.assertGreaterEqual(len(text), 300)
        self.assertEqual(text, (b"xyz" * (len(text) // 3 + 1))[:len(text)])

    def test_interrupt_before_the_answer(self):
        """While it reads the prompt, which it does once it has taken the first of it from the pipe."""
        reader, writer = os.pipe()
        p = self.start("run", self.model, stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.write(writer, b"A")
        end = time.monotonic() + HANG
        while struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"1234"))[0] > 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.002)
        p.send_signal(signal.SIGINT)
        self.assertEqual((p.communicate(timeout=HANG)[0], p.returncode), (b"", 130))
        os.close(reader)
        os.close(writer)

    def test_interrupt_json(self):
        code, out = self.interrupted("--json", model=self.path("long.gguf"))
        j = json.loads(out)
        self.assertEqual((code, j["stop"]), (130, "abort"))
        self.assertEqual(j["text"], ("xyz" * len(j["text"]))[:len(j["text"])])
        self.assertGreaterEqual(len(j["text"]), 3)

    def test_output_that_cannot_be_written(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            for extra in ([], ["--json"], ["--no-stream"]):
                p = subprocess.run([QUERN, "run", self.model, "-p", "A", "--temp", "0"] + extra, stdout=full,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
                self.assertEqual(p.returncode, 1)
                self.assertIn(b"quern: error: ", p.stderr)

    def test_bad_files(self):
        whole = read(self.model)
        cases = {"missing": None, "empty": b"", "text": b"<html>not a model</html>", "cut": whole[:len(whole) // 2],
                 "cut1": whole[:-32]}
        for name, data in cases.items():
            path = self.path(name) if data is None else self.file(name, data)
            for command in (["run", path, "-p", "A"], ["info", path], ["plan", path]):
                self.refuse([name], *command)
        self.refuse([self.dir], "run", self.dir, "-p", "A")
        self.refuse(["alien"], "run", self.path("alien.gguf"), "-p", "A")
        self.refuse(["vocab"], "run", self.path("vocab.gguf"), "-p", "A")
        self.refuse(["no tokenizer"], "run", self.path("ids.gguf"), "-p", "A")
        self.refuse(["NaN"], "run", self.path("nan.gguf"), "-p", "A")
        self.refuse(["--model-configs", "no-such"], "run", self.model, "-p", "A", "--model-configs", "no-such")
        self.refuse(["--kernel-src", "no-such"], "run", self.model, "-p", "A", "--kernel-src", "no-such")
        empty = tempfile.mkdtemp(dir=self.dir)
        self.refuse(["llama"], "run", self.model, "-p", "A", "--model-configs", empty)


class LookInside(CliTest):
    def test_info(self):
        r = self.quern("info", self.model, "--tensors")
        self.assertEqual((r.code, r.err), (0, ""))
        for words in ("llama", "GGUF v3", "token_embd.weight", "f32", "llama.block_count", "n_embd        1024",
                      "eos           2 '</s>'", "end tokens    2 '</s>' 3 '<|eot|>'", "KV cache", "tokenizer.ggml.tokens"):
            self.assertIn(words, r.text)
        self.assertNotIn("attn_q", self.quern("info", self.model).text)

    def test_info_json(self):
        j = self.quern("info", self.model, "--json", "--tensors", "-c", "32").json
        n = len(table.TOKENS)
        self.assertEqual((j["architecture"], j["model"]["n_vocab"], j["model"]["n_ctx"]), ("llama", n, 32))
        self.assertEqual(j["tensor_types"]["f32"]["tensors"], 12)
        self.assertEqual(j["n_params"], 2 * n * 1024 + 3 * 1024 + 1024 * (64 + 32 + 32 + 64 + 3 * 32))
        self.assertEqual(j["tensors"][0], {"name": "token_embd.weight", "type": "f32", "shape": [1024, n],
                                           "bytes": 4 * 1024 * n})
        self.assertEqual(j["metadata"]["llama.context_length"], 64)
        self.assertEqual(j["metadata"]["tokenizer.ggml.tokens"], {"type": "str", "count": n})
        self.assertEqual(j["tokenizer"]["end_tokens"], [2, 3])
        self.assertEqual(j["memory"]["n_ctx"], 32)
        self.assertEqual(j["memory"]["total"], sum(j["memory"][k] for k in ("weights", "kv", "activations", "other")))

    def test_info_of_what_cannot_run(self):
        r = self.quern("info", self.path("alien.gguf"))
        self.assertEqual(r.code, 0)
        self.assertIn("cannot run: ", r.text)
        self.assertIn("alien", r.text)
        self.assertIn("end tokens", r.text)
        r = self.quern("info", self.path("vocab.gguf"))
        self.assertEqual(r.code, 0)
        self.assertIn("vocabulary only", r.text)
        self.assertIn("kind          llama", r.text)
        self.assertIn("cannot_run", self.quern("info", self.path("vocab.gguf"), "--json").json)
        self.assertIn("tokenizer", self.quern("info", self.path("ids.gguf")).text)

    def test_a_tokenizer_quern_does_not_know(self):
        odd = self.path("odd-text.gguf")
        self.refuse(["sesquipedalian"], "run", odd, "-p", "A")
        r = self.quern("info", odd)
        self.assertEqual(r.code, 0)
        self.assertIn("sesquipedalian", r.text)
        for command in (["plan", odd], ["bench", odd, "-p", "4", "-n", "2", "-r", "1"],
                        ["logits", odd, "--tokens", self.ids("one", [1])]):
            self.assertEqual(self.quern(*command).code, 0)  # ids need no text

    def test_plan(self):
        both = self.quern("plan", self.model)
        self.assertEqual((both.code, both.err), (0, ""))
        self.assertIn("# prefill", both.text)
        self.assertIn("# decode", both.text)
        self.assertNotIn("# prefill", self.quern("plan", self.model, "--phase", "decode").text)
        self.assertIn("blk.0", both.text)

    def ids(self, name, values):
        return self.file(name, array.array("i", values).tobytes())

    def test_logits(self):
        n = len(table.TOKENS)
        tokens = self.ids("ids", [1, table.ID["A"], table.ID["B"], table.ID["C"]])
        rows = {}
        for mode in ("batch", "per-token", "decode"):
            for extra in ([], ["--exact"], ["-ub", "3"]):
                out = self.path("out")
                r = self.quern("logits", self.model, "--tokens", tokens, "-o", out, "--mode", mode, *extra)
                self.assertEqual((r.code, r.out), (0, b""), r.err)
                values = array.array("f", read(out))
                self.assertEqual(len(values), 4 * n)
                for i, (last, following) in enumerate((("<s>", table.BLANK + "Hi"), ("A", table.BLANK + "Hello"),
                                                       ("B", table.byte(table.EMOJI[0])), ("C", "x"))):
                    for t in range(n):
                        want = 20.0 if t == table.ID[following] else 0.0
                        self.assertAlmostEqual(values[i * n + t], want, places=4, msg="%s after %s" % (t, last))
                rows[mode, tuple(extra)] = values
        piped = self.quern("logits", self.model, "--tokens", "-", stdin=read(tokens))
        self.assertEqual(piped.out, rows["batch", ()].tobytes())

    def test_logits_of_one_step(self):
        tokens = self.ids("two", [table.ID["A"], table.ID["C"]])
        r = self.quern("logits", self.model, "--tokens", tokens, "--stop-after", "embed", "--exact")
        values = array.array("f", r.out)
        self.assertEqual(r.code, 0, r.err)
        self.assertIn("embed: 2 x 1024 float32", r.err)
        for i, t in enumerate("AC"):
            self.assertEqual([k for k in range(1024) if values[1024 * i + k]], [table.ID[t]])
        self.assertEqual(self.quern("logits", self.model, "--tokens", tokens, "--stop-after", "0", "--exact").out, r.out)
        self.refuse(["nonsense"], "logits", self.model, "--tokens", tokens, "--stop-after", "nonsense")
        self.refuse(["999"], "logits", self.model, "--tokens", tokens, "--stop-after", "999")

    def test_check(self):
        tokens = self.file("check.bin", array.array("i", range(5)).tobytes())
        for mode in ("batch", "per-token", "decode"):
            r = self.quern("logits", self.model, "--tokens", tokens, "--mode", mode, "--check", "--json", "--backend", "cpu")
            self.assertEqual(r.code, 0, r.err)
            self.assertTrue(r.json["passed"])
            ops = {s["op"] for s in r.json["steps"]}
            self.assertTrue({"embed", "norm", "linear", "rope_kv", "attention"} <= ops, ops)
            for s in r.json["steps"]:
                self.assertLessEqual(s["worst_nmse"], s["tolerance"])
        r = self.answer("-p", "abc", "--check", "-n", "2", "--backend", "cpu")
        self.assertEqual(r.code, 0, r.err)
        self.assertIn("all steps are within their tolerance", r.text)
        self.assertIn("decode", r.text)

    def test_check_names_the_step(self):
        """A model whose logits are NaN: the first step that makes them is named, and the status says so."""
        r = self.answer("-p", "abc", "--check", "-n", "0", "--backend", "cpu", model=self.path("nan.gguf"))
        self.assertEqual(r.code, 1)
        self.assertRegex(r.err, r"error: --check: step \S+ \(.*NMSE inf")

    def test_logits_refusals(self):
        n = len(table.TOKENS)
        self.refuse([str(n)], "logits", self.model, "--tokens", self.ids("bad", [1, n]))
        self.refuse(["-1"], "logits", self.model, "--tokens", self.ids("bad", [-1]))
        self.refuse(["65", "64"], "logits", self.model, "--tokens", self.ids("many", [1] * 65))
        self.refuse(["int32"], "logits", self.model, "--tokens", self.file("odd", b"12345"))
        self.refuse(["int32"], "logits", self.model, "--tokens", self.file("none", b""))
        self.refuse(["no-such"], "logits", self.model, "--tokens", "no-such")
        self.refuse(["no ids"], "logits", self.model, code=2)
        self.refuse(["NaN"], "logits", self.path("nan.gguf"), "--tokens", self.ids("one", [1]))


class Measure(CliTest):
    def test_perplexity(self):
        """Every token of "xyzxyz..." follows from the one before with logit 20 among zeros."""
        import math
        text = self.file("xyz", b"xyz" * 1000)
        n = len(table.TOKENS)
        nll = math.log(math.exp(20) + n - 1) - 20
        r = self.quern("perplexity", self.path("long.gguf"), "-f", text, "--exact", "--json")
        self.assertEqual(r.code, 0, r.err)
        j = r.json
        self.assertEqual((j["n_ctx"], j["n_chunks"], j["n_scored"]), (512, 5, 5 * 255))
        self.assertAlmostEqual(j["mean_nll"], nll, delta=1e-6 * nll + 1e-9)
        self.assertAlmostEqual(j["error"], 0, places=6)
        r = self.quern("perplexity", self.path("long.gguf"), "-f", text, "-c", "64", "--chunks", "2", "-q")
        self.assertRegex(r.text, r"^PPL = 1\.0000 \+/- 0\.0000\d over 62 tokens in 2 chunks of 64\n$")

    def test_perplexity_of_alternating_chances(self):
        """After each of 0..3: p(0) = 1/2, p(1) = 1/4, p(2) = p(3) = 1/8, nearly; the rest of the vocabulary is nothing."""
        import math
        chain = table.CHAINS["0"]
        n = len(table.TOKENS)
        z = sum(math.exp(v) for v in chain.values()) + n - len(chain)
        text = "0123" * 200
        size = 32
        want = []
        ids = [None] + list(text)
        for c in range(len(ids) // size):
            chunk = ids[c * size:(c + 1) * size]
            want += [math.log(z) - chain[chunk[i + 1]] for i in range(size // 2, size - 1)]
        j = self.quern("perplexity", self.path("long.gguf"), "-f", self.file("digits", text.encode()), "-c", str(size),
                       "--exact", "--json").json
        mean = sum(want) / len(want)
        var = sum(x * x for x in want) / len(want) - mean * mean
        self.assertEqual(j["n_scored"], len(want))
        self.assertAlmostEqual(j["perplexity"], math.exp(mean), places=4)
        self.assertAlmostEqual(j["error"], math.sqrt(var / (len(want) - 1)) * math.exp(mean), places=4)

    def test_perplexity_refusals(self):
        self.refuse(["512"], "perplexity", self.path("long.gguf"), "-f", self.file("short", b"xyz"))
        self.refuse(["no text"], "perplexity", self.model, code=2)
        self.refuse(["no tokenizer"], "perplexity", self.path("ids.gguf"), "-f", self.file("short", b"xyz"))

    def test_bench(self):
        for model in ("t.gguf", "ids.gguf"):
            r = self.quern("bench", self.path(model), "-p", "16,32", "-n", "4", "-r", "2", "-o", "json", "-t", "1")
            self.assertEqual(r.code, 0, r.err)
            tests = [(t["n_prompt"], t["n_gen"], len(t["samples_ts"]), t["n_threads"]) for t in r.json]
            self.assertEqual(tests, [(16, 0, 2, 1), (32, 0, 2, 1), (0, 4, 2, 1)])
            for t in r.json:
                self.assertGreater(t["avg_ts"], 0)
                self.assertAlmostEqual(sum(t["samples_ts"]) / 2, t["avg_ts"], delta=1e-6 * t["avg_ts"])
        r = self.quern("bench", self.model, self.path("ids.gguf"), "-p", "8", "-n", "3", "-d", "0,5", "-r", "1", "-o", "json")
        self.assertEqual([(t["n_prompt"], t["n_gen"], t["n_depth"]) for t in r.json],
                         2 * [(8, 0, 0), (0, 3, 0), (8, 0, 5), (0, 3, 5)])
        self.assertTrue(all(t["tflop_per_second"] > 0 for t in r.json))
        self.assertEqual([t["gb_per_second"] > 0 for t in r.json], 4 * [False, True])
        r = self.quern("bench", self.model, "-p", "8", "-n", "3", "-d", "5", "-r", "2", "-o", "csv")
        header, *rows = [line.split(",") for line in r.text.splitlines()]
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertEqual(len(row), len(header))
        self.assertEqual(rows[1][header.index("n_gen")], "3")
        self.assertIn("tg3 @ d5", self.quern("bench", self.model, "-p", "0", "-n", "3", "-d", "5", "-r", "1").text)
        r = self.quern("bench", self.model, "-p", "8", "-n", "0", "-r", "1")
        self.assertIn("pp8", r.text)
        self.assertNotIn("tg", r.text)
        self.refuse(["nothing"], "bench", self.model, "-p", "0", "-n", "0", code=2)


if __name__ == "__main__":
    main()
