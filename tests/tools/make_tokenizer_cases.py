#!/usr/bin/env python3
"""Expected token ids by llama.cpp, as the lines that `quern tokenize --cases` reads.

usage: make_tokenizer_cases.py VOCABULARY.gguf TEXTS.jsonl [--pre NAME] > CASES.jsonl

TEXTS.jsonl has one object a line with "text" or "bytes_hex"; other members are ignored. --pre: the vocabulary is read
as if it named that pre-tokenizer, and each line says so with a member "pre". Each text is tokenised with
add_special and parse_special both on and both off; the second is left out where it gives the same ids.

Needs llama-cpp-python. llama.cpp ends the program on code points above U+10FFFF in malformed text: leave those out.
"""

import argparse
import ctypes
import json
import struct
import sys
import tempfile

import llama_cpp as lc

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
KEY = b"tokenizer.ggml.pre"


def end_of_value(data, kind, at):
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != ARRAY:
        return at + SIZES[kind]
    kind, n = struct.unpack_from("<IQ", data, at)
    at += 12
    if kind != STRING:
        return at + n * SIZES[kind]
    for _ in range(n):
        at = end_of_value(data, STRING, at)
    return at


def with_pre(path, pre):
    """The bytes of a vocabulary-only GGUF with another tokenizer.ggml.pre."""
    data = open(path, "rb").read()
    n_tensors, n_kv = struct.unpack_from("<QQ", data, 8)
    if n_tensors:
        sys.exit(f"{path} has tensors: --pre needs a vocabulary-only file")
    kept, at = [], 24
    for _ in range(n_kv):
        begin = at
        n = struct.unpack_from("<Q", data, at)[0]
        key = data[at + 8 : at + 8 + n]
        kind = struct.unpack_from("<I", data, at + 8 + n)[0]
        at = end_of_value(data, kind, at + 12 + n)
        if key != KEY:
            kept.append(data[begin:at])
    name = pre.encode()
    kept.append(struct.pack("<Q", len(KEY)) + KEY + struct.pack("<IQ", STRING, len(name)) + name)
    out = data[:16] + struct.pack("<Q", len(kept)) + b"".join(kept)
    return out + bytes(-len(out) % 32)


def load(path):
    params = lc.llama_model_default_params()
    params.vocab_only = True
    model = lc.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit(f"llama.cpp cannot load {path}")
    return lc.llama_model_get_vocab(model)


def tokenize(vocab, text, add, parse):
    n = 3 * len(text) + 16
    ids = (ctypes.c_int32 * n)()
    n = lc.llama_tokenize(vocab, text, len(text), ids, n, add, parse)
    if n < 0:
        sys.exit(f"llama.cpp gives up on {text!r}")
    return list(ids[:n])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("vocabulary")
    p.add_argument("texts")
    p.add_argument("--pre")
    args = p.parse_args()
    lc.llama_backend_init()
    if args.pre:
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            f.write(with_pre(args.vocabulary, args.pre))
            f.flush()
            vocab = load(f.name)
    else:
        vocab = load(args.vocabulary)
    for line in open(args.texts, encoding="utf-8"):
        given = json.loads(line)
        text = given["text"].encode() if "text" in given else bytes.fromhex(given["bytes_hex"])
        seen = None
        for flag in (True, False):
            ids = tokenize(vocab, text, flag, flag)
            if ids == seen:
                continue
            seen = ids
            case = {"pre": args.pre} if args.pre else {}
            case.update({k: given[k] for k in ("text", "bytes_hex") if k in given})
            case.update(add_special=flag, parse_special=flag, ids=ids)
            print(json.dumps(case, ensure_ascii=False, separators=(",", ":")))


main()
