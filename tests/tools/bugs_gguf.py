#!/usr/bin/env python3
"""Bug cases B01 to B08 of docs/bug-cases.md, as a user meets them: bugs_gguf.py QUERN [unittest arguments]."""
import array
import os
import shutil
import struct
import subprocess
import sys

import cli_case
from cli_case import DATA, CliCase, options, read, table

ABSURD = (1 << 60, (1 << 64) - 1, (1 << 63) + 32, 1 << 32)
QUANTS = os.path.join(DATA, "goldens", "quants")


class Loading(CliCase):
    def parts(self, *args):
        a = options(*args)
        return table.metadata(a), table.tensors(a)

    def write(self, name, *args, **kw):
        return self.file(name, table.pack(*args, **kw))

    def every_command(self, path):
        """Argument lists of all commands that read a model."""
        text = self.file("some-text", b"xyz" * 200)
        ids = self.file("some-ids", array.array("i", [1, 261]).tobytes())
        return (["run", path, "-p", "A"], ["info", path], ["plan", path], ["bench", path, "-p", "4", "-n", "1", "-r", "1"],
                ["tokenize", path, "-p", "A"], ["detokenize", path, "5"], ["perplexity", path, "-f", text],
                ["logits", path, "--tokens", ids], ["draft", path], ["ptx", path, "--arch", "sm_80"])

    # B01: a file that was cut
    def test_b01_cut_files(self):
        whole = read(self.model)
        for size in (len(whole) // 10, len(whole) // 2, len(whole) * 999 // 1000, len(whole) - 1):
            path = self.file("cut.gguf", whole[:size])
            for command in self.every_command(path):
                line = self.refuse(["cut.gguf", "does not fit", "%d bytes" % size, "probably incomplete"], *command)
                self.assertRegex(line, r"tensor \S+ does not fit: its \d+ bytes end at byte \d+")
        self.refuse(["token_embd.weight"], "run", self.file("cut.gguf", whole[:len(whole) // 10]), "-p", "A")

    def test_b01_cut_inside_header_keys_and_table(self):
        kv, ts = self.parts()
        whole = table.pack(kv, ts)
        start = len(whole) - sum(len(t[2]) + -len(t[2]) % 32 for t in ts)
        for size in list(range(0, 200)) + list(range(200, start, 97)) + [start - 1, start, start + 1]:
            self.refuse(["cut.gguf"], "info", self.file("cut.gguf", whole[:size]))

    def test_b01_a_sparse_file_of_the_right_size_is_whole(self):
        """Only sizes are looked at: a hole reads as zeros, and zeros are finite weights."""
        whole = read(self.model)
        path = self.file("hole.gguf", whole[:len(whole) // 2])
        os.truncate(path, len(whole))
        self.assertEqual(self.quern("run", path, "-p", "A", "-n", "1").code, 0)

    # B02: counts, lengths and products that the file cannot pay for
    def test_b02_counts_of_the_header(self):
        for n in ABSURD:
            for at in (8, 16):  # n_tensors, n_kv
                head = bytearray(100)
                head[:8] = b"GGUF" + struct.pack("<I", 3)
                struct.pack_into("<Q", head, at, n)
                path = self.file("count.gguf", bytes(head))
                self.refuse(["100 bytes"], "info", path, memory=400 << 20)

    def test_b02_lengths_of_strings_and_arrays(self):
        a = options()
        for n in ABSURD:
            for body in (struct.pack("<IQ", table.STRING, n), struct.pack("<IIQ", table.ARRAY, table.U32, n),
                         struct.pack("<IIQ", table.ARRAY, table.STRING, n), struct.pack("<IIQ", table.ARRAY, table.BOOL, n)):
                head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + table.text("k") + body
                self.refuse(["key k"], "info", self.file("length.gguf", head.ljust(100, b"\0")), memory=400 << 20)
            head = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, n)  # of the key's own name
            self.refuse(["metadata key 1"], "info", self.file("length.gguf", head.ljust(100, b"\0")), memory=400 << 20)
        self.assertEqual(a.context, 64)

    def test_b02_nested_arrays_and_unknown_types(self):
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + table.text("k")
        deep = head + struct.pack("<I", table.ARRAY) + struct.pack("<IQ", table.ARRAY, 1) * 1000000
        self.refuse(["key k", "array of arrays"], "info", self.file("deep.gguf", deep), memory=400 << 20)
        for kind in (13, 14, 255, 0xffffffff):
            self.refuse(["key k", str(kind)], "info", self.file("kind.gguf", head + struct.pack("<IQ", kind, 0)))

    def test_b02_products_that_wrap(self):
        kv, ts = self.parts()
        for ne in ((1 << 32, 1 << 32), ((1 << 64) - 1, 2), (1 << 62,), (1 << 16, 1 << 16, 1 << 16, (1 << 16) + 1),
                   ((1 << 63) // 2 + 1, 4), (0,), (64, 0), (), (1,) * 5, (1,) * 100):
            path = self.write("wrap.gguf", kv, ts + [("bad", ne, b"\0" * 64)])
            self.refuse(["bad"], "run", path, "-p", "A", memory=400 << 20)

    def test_b02_offsets_that_wrap(self):
        kv, ts = self.parts()
        whole = table.pack(kv, ts)
        name = table.text("blk.0.ffn_down.weight")
        at = whole.index(name) + len(name) + 4 + 16 + 4
        for offset in (1 << 63, (1 << 64) - 32, (1 << 64) - 1, len(whole)):
            bad = whole[:at] + struct.pack("<Q", offset) + whole[at + 8:]
            self.refuse(["blk.0.ffn_down.weight"], "run", self.file("offset.gguf", bad), "-p", "A", memory=400 << 20)

    def test_b02_numbers_of_the_model(self):
        """Keys that are legal integers but make no model: every one is refused, none allocates."""
        kv, ts = self.parts()
        for key, kind, _ in kv:
            if not key.startswith("llama.") or kind != table.U32:
                continue
            for v in (0, 0xffffffff, 0x7fffffff, 1 << 20):
                if key in ("llama.context_length", "llama.vocab_size"):
                    continue  # what a context takes is B29's; the vocabulary is counted from the tensors
                bad = [(k, t, v if k == key else old) for k, t, old in kv]
                r = self.quern("run", self.write("number.gguf", bad, ts), "-p", "A", memory=1 << 30)
                self.assertEqual((r.code, r.out, r.err.count("quern: error: ")), (1, b"", 1), (key, v, r.err))

    # B03: not a model, each said in its own words
    def test_b03_foreign_files(self):
        kv, ts = self.parts()
        swapped = struct.pack(">I", 3)
        cases = {
            "big-endian": (b"GGUF" + swapped + b"\0" * 64, ["big-endian"]),
            "version 1": (table.pack(kv, ts, version=1), ["version 1", "too old"]),
            "version 4": (table.pack(kv, ts, version=4), ["version 4", "too new"]),
            "ggjt": (b"tjgg" + struct.pack("<I", 3) + b"\0" * 64, ["ggjt", "convert"]),
            "empty": (b"", ["empty"]),
            "short": (b"GGUF", ["4 bytes"]),
            "page": (b"<!DOCTYPE html><html><body>404: not found</body></html>", ["HTML"]),
            "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n", ["git-lfs", "git lfs pull"]),
            "text": (b"Once upon a time there was a text file of some length.\n" * 4, ["not a GGUF", "Once"]),
            "zeros": (b"\0" * 4096, ["not a GGUF"]),
            "zip": (b"PK\3\4" + b"\0" * 64, ["zip"]),
            "safetensors": (struct.pack("<Q", 64) + b'{"__metadata__":{}}' + b"\0" * 64, ["safetensors"]),
            "gzip": (b"\x1f\x8b\x08\0" + b"\0" * 64, ["gzip"]),
            "elf": (read(cli_case.QUERN)[:4096], ["not a GGUF"]),
        }
        seen = set()
        for name, (data, words) in cases.items():
            path = self.file("x.gguf", data)
            for command in (["run", path, "-p", "A"], ["info", path], ["draft", path]):
                line = self.refuse(["x.gguf"] + words, *command)
            self.assertNotIn(line, seen, name)
            seen.add(line)

    def test_b03_not_regular_files(self):
        fifo = self.path("fifo.gguf")
        os.mkfifo(fifo)
        for path, words in ((fifo, ["FIFO"]), (self.dir, ["directory"]), ("/dev/zero", ["regular file"]),
                            (self.path("none.gguf"), ["No such file"]), (self.path("t.gguf") + "/x", ["Not a directory"]),
                            ("/proc/self/status", ["/proc/self/status"]), ("", ["No such file"])):
            self.refuse(words, "run", path, "-p", "A", timeout=20)
        loop = self.path("loop.gguf")
        os.symlink(loop, loop)
        self.refuse(["loop.gguf"], "run", loop, "-p", "A")
        control = self.path("\x1b[31mred\n.gguf")  # what a name holds does not reach the terminal as it is
        self.refuse(["?[31mred?.gguf"], "run", control, "-p", "A")

    def test_b03_no_permission(self):
        secret = os.path.join(self.dir, "secret.gguf")
        shutil.copy(self.model, secret)
        os.chmod(secret, 0)
        if os.geteuid() != 0:
            self.refuse(["permission"], "run", secret, "-p", "A")
            return
        os.chmod(self.dir, 0o755)  # root may read anything: asked as nobody
        p = subprocess.run([cli_case.QUERN, "run", secret, "-p", "A"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, user=65534, group=65534, extra_groups=[]) if os.access(
                               cli_case.QUERN, os.X_OK) else None
        if b"permission" not in p.stderr.lower():
            self.fail(p.stderr)
        self.assertEqual((p.returncode, p.stdout), (1, b""))

    def test_b03_both_versions_load(self):
        kv, ts = self.parts()
        for version in (2, 3):
            self.expect(" Hello world!", "-p", "A", model=self.write("v%d.gguf" % version, kv, ts, version=version))

    # B04: alignment
    def logits(self, path):
        r = self.quern("logits", path, "--tokens", self.file("ids", array.array("i", [1, 261, 262, 263]).tobytes()), "-q")
        self.assertEqual(r.code, 0, r.err)
        return r.out

    def test_b04_alignment(self):
        kv, ts = self.parts()
        want = self.logits(self.model)
        for align in (8, 16, 32, 64, 256, 4096, 65536):
            key = [("general.alignment", table.U32, align)]
            for path in (self.write("front.gguf", key + kv, ts, align=align), self.write("back.gguf", kv + key, ts, align=align)):
                self.assertEqual(self.logits(path), want, align)
        for align in (0, 1, 3, 33, 0x80000001):
            path = self.write("odd.gguf", kv + [("general.alignment", table.U32, align)], ts)
            self.refuse(["general.alignment", str(align)], "run", path, "-p", "A")

    # B05: split files
    def split(self, where, n, name="m"):
        kv, ts = self.parts()
        os.makedirs(os.path.join(self.dir, where), exist_ok=True)
        paths = []
        for i in range(n):
            keys = [("split.no", 2, i), ("split.count", 2, n), ("split.tensors.count", table.I32, len(ts))]
            paths.append(self.file("%s/%s-%05d-of-%05d.gguf" % (where, name, i + 1, n),
                                   pack16((kv if i == 0 else []) + keys, ts[i::n])))
        return paths

    def test_b05_split_models(self):
        one, two, three = self.split("whole", 3)
        self.expect(" Hello world!", "-p", "A", model=one)
        self.assertEqual(self.logits(one), self.logits(self.model))
        for other in (two, three):
            for command in self.every_command(other):
                self.refuse(["pass", one], *command)
        self.assertIn("3", self.quern("info", one).text)
        os.remove(three)
        self.refuse([three], "run", one, "-p", "A")
        one, two, three = self.split("cut", 3)
        os.truncate(two, os.path.getsize(two) - 64)
        self.refuse([two, "incomplete"], "run", one, "-p", "A")
        one, two, three = self.split("mixed", 3)
        shutil.copy(two, three)
        self.refuse([three, "split.no"], "run", one, "-p", "A")
        one = self.split("renamed", 3)[0]
        os.rename(one, self.path("renamed/model.gguf"))
        self.refuse(["00001-of-00003"], "run", self.path("renamed/model.gguf"), "-p", "A")

    def test_b05_one_of_one(self):
        self.expect(" Hello world!", "-p", "A", model=self.split("single", 1)[0])
        os.makedirs(self.path("plain"))
        plain = self.path("plain/m-00001-of-00001.gguf")
        shutil.copy(self.model, plain)
        self.expect(" Hello world!", "-p", "A", model=plain)
        kv, ts = self.parts()  # a name like a part's, but no split keys: an ordinary file
        self.expect(" Hello world!", "-p", "A", model=self.write("plain/m-00002-of-00003.gguf", kv, ts))

    # B06: tied head, unknown architectures, more tensors than needed
    def test_b06_tied_head(self):
        kv, ts = self.parts()
        tied = self.write("tied.gguf", kv, [t for t in ts if t[0] != "output.weight"])
        self.expect("A" * 5, "-p", "A", "-n", "5", model=tied)  # the embedding's rows are one-hot: a token follows itself
        self.assertIn("tied", self.quern("info", tied).text)

    def test_b06_unknown_architectures_and_experts(self):
        alien = self.table("alien", "--arch", "alien")
        line = self.refuse(["alien"], "run", alien, "-p", "A")
        self.assertNotRegex(line, "corrupt|incomplete|missing")
        kv, ts = self.parts()
        for name, words in (("blk.0.ffn_gate_exps.weight", ["expert"]), ("blk.0.ffn_gate_inp.weight", ["expert"]),
                            ("blk.0.ssm_in.weight", ["blk.0.ssm_in.weight"])):
            path = self.write("odd.gguf", kv, ts + [(name, (1024, 32), b"\0" * 4 * 1024 * 32)])
            line = self.refuse(words, "run", path, "-p", "A")
            self.assertNotRegex(line, "corrupt|incomplete")
        experts = self.write("moe.gguf", kv + [("llama.expert_count", table.U32, 8)], ts)
        self.refuse(["expert"], "run", experts, "-p", "A")

    def test_b06_extra_tensors(self):
        kv, ts = self.parts()
        freqs = ("rope_freqs.weight", (16,), struct.pack("<16f", *[1.0] * 16))
        self.expect(" Hello world!", "-p", "A", model=self.write("freqs.gguf", kv, ts + [freqs]))

    def test_b06_biases(self):
        """One beside a projection is applied, of a norm that has none in this family it is told."""
        kv, ts = self.parts()
        width = next(t[1][0] for t in ts if t[0] == "output_norm.weight")
        zeros = lambda name: (name, (width,), b"\0" * 4 * width)
        done = self.quern("run", self.write("bias.gguf", kv, ts + [zeros("blk.0.attn_output.bias")]), "-p", "A", "-n", "2")
        self.assertEqual((done.code, "warning" in done.err), (0, False))
        norms = [zeros("output_norm.bias"), zeros("blk.0.attn_norm.bias")]
        done = self.quern("run", self.write("norms.gguf", kv, ts + norms), "-p", "A", "-n", "2")
        self.assertEqual(done.code, 0)
        self.assertIn("warning: tensor output_norm.bias and 1 more", done.err)
        self.assertIn("llama.yaml does not apply", done.err)

    # B07: tensor types
    def test_b07_types_that_are_not_served(self):
        kv, ts = self.parts()
        for kind, name, block, size in ((39, "mxfp4", 32, 17), (34, "tq1_0", 256, 54), (16, "iq2_xxs", 256, 66), (24, "i8", 1, 1)):
            for victim in ("token_embd.weight", "blk.0.ffn_up.weight", "blk.0.attn_norm.weight"):
                out = []
                for t in ts:
                    n = 1
                    for x in t[1]:
                        n *= x
                    out.append((t[0], t[1], b"\0" * (n // block * size), kind) if t[0] == victim else t)
                line = self.refuse([victim, name], "run", self.write("type.gguf", kv, out), "-p", "A")
                if victim.endswith("up.weight"):
                    self.assertRegex(line.lower(), "q4_k.*q8_0|q8_0.*q4_k")
        refused = os.path.join(QUANTS, "llama-IQ1_S.gguf")
        line = self.refuse(["token_embd.weight"], "run", refused, "-p", "A")
        self.assertIn("iq1_s", line.lower())

    def test_b07_short_rows_of_blocks(self):
        kv, ts = self.parts()
        bad = ("blk.0.extra.weight", (896, 4), b"\0" * 4096, 12)  # q4_K
        self.refuse(["blk.0.extra.weight", "896", "256"], "run", self.write("row.gguf", kv, ts + [bad]), "-p", "A")

    def test_b07_types_mix_per_tensor(self):
        for name in ("BF16", "mix-Q4_K_M", "mix-Q3_K_L", "mix-Q5_K_M", "IQ4_XS"):
            path = os.path.join(QUANTS, "llama-%s.gguf" % name)
            r = self.quern("logits", path, "--tokens", path[:-4] + "tokens", "-q")
            self.assertEqual(r.code, 0, r.err)
            kinds = self.quern("info", path, "--json").json["tensor_types"]
            if "mix" in name:
                self.assertGreater(len(kinds), 2)

    # B08: the head's width
    def test_b08_head_width(self):
        """The file's own key wins over n_embd / n_head (1024 / 2 here, 32 in the file), and tensors must agree with it."""
        kv, ts = self.parts()
        self.assertIn("head_dim 32", self.quern("info", self.model).text)
        for key in ("llama.attention.key_length", "llama.attention.value_length"):
            wrong = [(k, t, 64 if k == key else v) for k, t, v in kv]
            line = self.refuse(["attn_"], "run", self.write("head.gguf", wrong, ts), "-p", "A")
            self.assertRegex(line, r"32|64")
        without = [x for x in kv if not x[0].endswith("_length") or "attention" not in x[0]]
        line = self.refuse(["attn_q"], "run", self.write("head.gguf", without, ts), "-p", "A")
        self.assertRegex(line, "64.*1024|1024.*64")
        os.mkdir(self.path("configs"))  # a config that fixes another width than the file's tensors have
        self.file("configs/llama.yaml", b"architecture: llama\nnorm: {eps: 1e-6}\nattention: {head_dim: 64}\nrope: {style: interleaved}\n")
        line = self.refuse(["attn_q", "llama.yaml"], "run", self.model, "-p", "A", "--model-configs", self.path("configs"))
        self.assertRegex(line, "64.*128|128.*64")


def pack16(kv, ts):
    """pack, for keys of type uint16 too."""
    class U16(int):
        pass

    original = table.value
    table.value = lambda kind, v: struct.pack("<H", v) if kind == 2 else original(kind, v)
    try:
        return table.pack(kv, ts)
    finally:
        table.value = original


if __name__ == "__main__":
    cli_case.main()
