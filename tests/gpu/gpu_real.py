"""The part of run_gpu.py on real models (scripts/fetch-models.sh): their distributions along stored texts against those of
tests/data/real (f32 throughout, by another engine; the exact arithmetic of backend cpu has them to 1e-7), in every way of
computing them, and what they answer."""
import json
import os
import re

from gpu_lib import ROOT, Skip, last_line

DATA = os.path.join(ROOT, "tests", "data", "real")
# Largest mean KL, and whose most likely token must be met (compare_real.c): f16 activations or f32 ones; 8-bit ones, as on the
# CPU; those with an 8-bit KV cache, which by itself (f32 throughout else) makes up to 0.74e-3 of SmolLM2; e4m3 ones,
# of 4 bits, opt-in, whose differing tokens are only counted.
FLOAT, BYTES, BYTES_KV, FP8 = ("1e-4", "exact"), ("2e-3", "fast"), ("3e-3", "fast"), ("4e-2", "kl")
WAYS = [("batch", [], FLOAT), ("batch", ["--f32-activations"], FLOAT), ("batch", ["--prefill", "cublaslt"], FLOAT),
        ("batch", ["--prefill", "mma"], FLOAT), ("batch", ["--prefill", "wgmma"], FLOAT), ("batch", ["--attention", "tma"], FLOAT),
        ("batch", ["--prefill", "mmq"], BYTES), ("batch", ["--prefill", "fp8"], FP8),
        ("per-token", [], BYTES), ("decode", [], BYTES), ("decode", ["--f32-activations"], FLOAT),
        ("decode", ["-ctk", "q8_0", "-ctv", "q8_0"], BYTES_KV), ("decode", ["--persistent"], BYTES), ("batch", ["--rows-apart"], FLOAT)]


def compare(b, program, model, prompt, got, want):
    stem = os.path.join(DATA, "%s-%s" % (model["name"], prompt["name"]))
    code, out, err, _ = b.run([program, stem + ".ref", got, str(model["n_vocab"]), str(prompt["n_prompt"] - 1), *want])
    m = re.search(r"mean KL (\S+) .*differs in (\d+) of (\d+)", out)
    return code, (float(m.group(1)), int(m.group(2)), int(m.group(3))) if m else None, last_line(out + err)


def case(b, program, job):
    path, model, prompt, (mode, extra, want) = job
    name = " ".join([model["name"], prompt["name"], mode] + extra)
    got = os.path.join(b.work, re.sub(r"\W+", "-", name) + ".bin")
    tokens = os.path.join(DATA, "%s-%s.tokens" % (model["name"], prompt["name"]))
    code, _, err = b.quern_run(["logits", path, "--tokens", tokens, "-o", got, "-c", "512", "--backend", b.backend, "--mode", mode] +
                               extra, timeout=200)
    figures = None
    if code != 0:
        b.fail("real " + name, err or "exit status %d" % code)
    else:
        code, figures, line = compare(b, program, model, prompt, got, want)
        if code != 0:
            b.fail("real " + name, line)
    if os.path.isfile(got):
        os.remove(got)
    return {"case": name, "way": " ".join([mode] + extra), "model": model["name"], "figures": figures}


def answer(b, path, prompt, n):
    code, out, err, _ = b.run([b.quern, "run", path, "-p", prompt["text"], "--temp", "0", "-n", str(n), "-c", "512", "--backend",
                               b.backend, "--json"], timeout=200)
    if code != 0:
        b.fail("real answer of " + os.path.basename(path), err)
        return "", 0
    text, want = json.loads(out)["text"], prompt["greedy"]
    return text, len(os.path.commonprefix([text.strip(), want.strip()]))


def real(b):
    folder = b.args.real_models or os.path.join(ROOT, "models")
    with open(os.path.join(DATA, "manifest.json"), encoding="utf-8") as f:
        models = [(os.path.join(folder, m["file"]), m) for m in json.load(f)]
    models = [(p, m) for p, m in models if os.path.isfile(p)]
    program = b.find("compare_real")
    if not models or not program:
        raise Skip("no real model in " + folder if not models else "no compare_real")
    ways = WAYS if b.backend == "cuda" else [("batch", [], BYTES)]
    jobs = [(p, m, prompt, way) for way in ways for p, m in models for prompt in m["prompts"]]
    rows = b.each(lambda j: case(b, program, j), jobs, workers=4)
    notes = []
    for way in dict.fromkeys(r["way"] for r in rows):
        kl = {}
        for r in rows:
            if r["way"] == way and r["figures"]:
                kl.setdefault(r["model"], []).append(r["figures"][0])
        notes.append("%s: %s" % (way, ", ".join("%.1e" % (sum(v) / len(v)) for v in kl.values())))
    for p, m in models:
        text, same = answer(b, p, m["prompts"][0], 64)
        rows.append({"case": "answer", "model": m["name"], "prompt": m["prompts"][0]["text"], "text": text, "same_characters": same})
        notes.append("%s answers as the other engine for %d characters" % (m["name"], same))
    return len(jobs) + len(models), "mean KL, %s: %s" % (", ".join(m["name"] for _, m in models), "; ".join(notes)), rows
