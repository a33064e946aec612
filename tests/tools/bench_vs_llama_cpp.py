#!/usr/bin/env python3
"""Speed of `quern` beside llama.cpp on the CPU of this machine, with the same model file, threads and token counts.

    VENV/bin/python tests/tools/bench_vs_llama_cpp.py QUERN MODEL... [-t THREADS] [-r ROUNDS]

Needs llama-cpp-python in the Python that runs it. In each round one process of either engine measures a prompt of 512
tokens and 128 tokens of generation after a warm-up (the engines take turns, and turns at being first); printed are the
medians over the rounds, their ratio, and the peak memory of either process. llama.cpp runs with its default settings.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

N_PROMPT, N_GEN = 512, 128


def llama_once(path, threads):
    """Tokens per second (prompt, generation) of one llama.cpp process, as JSON on stdout."""
    import ctypes
    import llama_cpp as L
    quiet = L.llama_log_callback(lambda level, text, user: None)
    L.llama_log_set(quiet, ctypes.c_void_p())
    mp, cp = L.llama_model_default_params(), L.llama_context_default_params()
    mp.n_gpu_layers = 0
    cp.n_ctx, cp.n_batch, cp.n_ubatch = N_PROMPT, N_PROMPT, N_PROMPT
    cp.n_threads = cp.n_threads_batch = threads
    model = L.llama_model_load_from_file(path.encode(), mp)
    ctx = L.llama_init_from_model(model, cp)
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    x, ids = 1, []
    for _ in range(N_PROMPT):
        x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        ids.append((x >> 33) % n_vocab)

    def run(n, step):
        L.llama_memory_clear(L.llama_get_memory(ctx), True)
        start = time.perf_counter()
        for i in range(0, n, step):
            part = (L.llama_token * step)(*ids[i:i + step])
            assert L.llama_decode(ctx, L.llama_batch_get_one(part, step)) == 0
        L.llama_synchronize(ctx)
        return n / (time.perf_counter() - start)

    run(N_PROMPT, N_PROMPT)
    pp = run(N_PROMPT, N_PROMPT)
    run(2, 1)
    print(json.dumps({"pp": pp, "tg": run(N_GEN, 1)}))


def measured(command):
    """(stdout, peak resident MB) of a command that must succeed."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    if status:
        sys.exit("%s: failed" % " ".join(command))
    return json.loads(out), usage.ru_maxrss / 1024


def quern_once(quern, path, threads):
    tests, peak = measured([quern, "bench", path, "-p", str(N_PROMPT), "-n", str(N_GEN), "-r", "1", "-t", str(threads),
                            "--backend", "cpu", "-o", "json"])
    return {"pp": next(t for t in tests if t["n_prompt"])["avg_ts"], "tg": next(t for t in tests if t["n_gen"])["avg_ts"],
            "mb": peak}


def other_once(path, threads):
    rates, peak = measured([sys.executable, os.path.abspath(__file__), "--llama-once", path, "-t", str(threads)])
    return dict(rates, mb=peak)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quern", nargs="?")
    parser.add_argument("models", nargs="*")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--llama-once", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.llama_once:
        return llama_once(args.llama_once, args.threads)
    if not args.models:
        parser.error("give QUERN and at least one MODEL")
    print("%d threads, %d rounds, load %.2f" % (args.threads, args.rounds, os.getloadavg()[0]))
    for path in args.models:
        ours, theirs = [], []
        for i in range(args.rounds):
            turns = [lambda: ours.append(quern_once(args.quern, path, args.threads)),
                     lambda: theirs.append(other_once(path, args.threads))]
            for turn in turns if i % 2 == 0 else reversed(turns):
                turn()
        print("%s (%.0f MB)" % (os.path.basename(path), os.path.getsize(path) / 2**20))
        for key, what in (("pp", "prefill, %d tokens" % N_PROMPT), ("tg", "decode, %d tokens" % N_GEN)):
            a, b = (statistics.median(r[key] for r in rows) for rows in (ours, theirs))
            spread = " ".join("%.1f-%.1f" % (min(r[key] for r in rows), max(r[key] for r in rows)) for rows in (ours, theirs))
            print("  %-20s quern %8.1f t/s, llama.cpp %8.1f t/s, ratio %.2f   (min-max %s)" % (what, a, b, a / b, spread))
        print("  peak memory          quern %8.0f MB, llama.cpp %8.0f MB" %
              tuple(max(r["mb"] for r in rows) for rows in (ours, theirs)))


if __name__ == "__main__":
    main()
