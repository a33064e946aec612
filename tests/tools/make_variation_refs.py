#!/usr/bin/env python3
"""Logits of llama.cpp for the models of a spec, as the lines of variations.ref: make_variation_refs.py VARIATIONS.spec > VARIATIONS.ref

Needs llama-cpp-python and numpy. Every tensor is given to it as f32, so that it rounds no activations; the KV cache is f32, flash
attention off, one thread, all tokens one batch. The tolerance is 1e-9, or 100 times the difference between one batch and one token at
a time where that is more. A model that llama.cpp refuses, or that is not finite, is named on stderr.
"""
import ctypes
import os
import sys
import tempfile

import llama_cpp as lc
import numpy as np

import make_golden_models as golden
import variation_cases as cases


def as_f32(model):
    """The model's bytes, its tensors rounded as in the file but written as f32."""
    name, seed, keys, tensors = model
    original = golden.tensor_data

    def data(seed, name, kind, dims, rule, args):
        raw = original(seed, name, "f16" if name in half else "f32", dims, rule, args)
        return np.frombuffer(raw, "<f2").astype("<f4").tobytes() if name in half else raw

    half = {t[0] for t in tensors if t[1] == "f16"}
    golden.tensor_data = data
    try:
        return golden.gguf(seed, keys, [(t[0], "f32") + tuple(t[2:]) for t in tensors])
    finally:
        golden.tensor_data = original


def logits(path, ids, n_ctx, step):
    mp = lc.llama_model_default_params()
    mp.n_gpu_layers, mp.use_extra_bufts = 0, False
    model = lc.llama_model_load_from_file(path.encode(), mp)
    if not model:
        return None
    cp = lc.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch = n_ctx, len(ids), len(ids)
    cp.n_threads = cp.n_threads_batch = 1
    cp.type_k = cp.type_v = 0
    cp.flash_attn_type, cp.swa_full = 0, True
    ctx = lc.llama_init_from_model(model, cp)
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    out = np.zeros((len(ids), n_vocab), np.float32)
    for begin in range(0, len(ids), step):
        part = ids[begin:begin + step]
        batch = lc.llama_batch_init(len(part), 0, 1)
        batch.n_tokens = len(part)
        for i, token in enumerate(part):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, begin + i, 1, 1
            batch.seq_id[i][0] = 0
        if lc.llama_decode(ctx, batch):
            return None
        for i in range(len(part)):
            out[begin + i] = np.ctypeslib.as_array(lc.llama_get_logits_ith(ctx, i), (n_vocab,))
        lc.llama_batch_free(batch)
    lc.llama_free(ctx)
    lc.llama_model_free(model)
    return out


def number_of_tokens(name):
    return 20 + golden.fnv1a64(name) % 14


def main():
    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "m.gguf")
        for model in golden.read_spec(sys.argv[1]):
            name, n = model[0], number_of_tokens(model[0])
            ids = cases.tokens(name, n, int(cases.key(model, "vocab_size")))
            with open(path, "wb") as f:
                f.write(as_f32(model))
            whole, single = (logits(path, ids, int(cases.key(model, "context_length")), step) for step in (n, 1))
            if whole is None or single is None or not np.isfinite(whole).all():
                print("%s: no logits" % name, file=sys.stderr)
                continue
            noise, tolerance = cases.nmse(whole.flatten().tolist(), single.flatten().tolist()), 1e-9
            while tolerance < 100 * noise:
                tolerance *= 10
            values = [whole[at] for at in cases.picked(n, whole.shape[1])]
            print("%s %d %.0e %s" % (name, n, tolerance, " ".join("%.7g" % x for x in values)), flush=True)


main()
