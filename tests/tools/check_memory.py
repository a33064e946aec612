#!/usr/bin/env python3
"""Peak memory of `quern run` against what it has to hold.

    check_memory.py QUERN MODEL [--ctx N] [--margin MB] [--kv-bytes N]

Runs a prompt of several hundred tokens and 32 tokens of answer on the CPU, and fails where the peak resident set
exceeds the model file, its K and V cache for N positions (worked out here from the file's own keys), and the
margin (150 MB).
"""
import argparse
import os
import resource
import struct
import subprocess
import sys

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def metadata(path):
    """The scalar and string keys of a GGUF file; of an array its length."""
    with open(path, "rb") as f:
        def read(code):
            return struct.unpack("<" + code, f.read(struct.calcsize("<" + code)))[0]

        def text():
            return f.read(read("Q")).decode("utf-8", "replace")

        def value(kind):
            if kind == STRING:
                return text()
            if kind != ARRAY:
                return read(SCALARS[kind])
            inner, n = read("I"), read("Q")
            if inner == STRING:
                for _ in range(n):
                    f.seek(read("Q"), os.SEEK_CUR)
            else:
                f.seek(n * struct.calcsize("<" + SCALARS[inner]), os.SEEK_CUR)
            return n

        if f.read(4) != b"GGUF":
            sys.exit("check_memory: %s is not a GGUF file" % path)
        read("I"), read("Q")
        keys = {}
        for _ in range(read("Q")):
            key = text()
            keys[key] = value(read("I"))
        return keys


def kv_bytes(path, n_ctx, bytes_per_value):
    keys = metadata(path)
    arch = keys["general.architecture"]

    def get(name, default=None):
        return keys.get("%s.%s" % (arch, name), default)

    n_head = get("attention.head_count")
    head_dim = get("embedding_length") // n_head
    row = get("attention.key_length", head_dim) + get("attention.value_length", head_dim)
    return get("block_count") * get("attention.head_count_kv", n_head) * row * n_ctx * bytes_per_value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quern")
    parser.add_argument("model")
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--margin", type=int, default=150)
    parser.add_argument("--kv-bytes", type=int, default=2)
    args = parser.parse_args()
    prompt = " ".join("The mill turns %d times." % i for i in range(80))
    command = [args.quern, "run", args.model, "-p", prompt, "-n", "32", "-c", str(args.ctx), "--temp", "0",
               "--backend", "cpu"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode or not done.stdout.strip():
        sys.exit("check_memory: status %d: %s" % (done.returncode, done.stderr.decode("utf-8", "replace")))
    mb = 1e6
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / mb
    weights = os.path.getsize(args.model) / mb
    kv = kv_bytes(args.model, args.ctx, args.kv_bytes) / mb
    print("peak %.1f MB; file %.1f + KV %.1f + margin %d = %.1f MB" %
          (peak, weights, kv, args.margin, weights + kv + args.margin))
    sys.exit(peak > weights + kv + args.margin)


main()
