#!/usr/bin/env python3
"""Makes tests/data/real: what llama.cpp says about the two real models (format: tests/data/real/README.md).

    python3 -m venv V && V/bin/pip install llama-cpp-python==0.3.36 gguf numpy
    scripts/fetch-models.sh all
    V/bin/python tests/tools/make_real_refs.py models tests/data/real WORKDIR

The model runs in three ways, each sequence evaluated as one batch on the CPU:
  q        the file as it is (llama.cpp rounds activations to 8-bit blocks); F32 K and V caches, no flash attention, no
           weight repacking. It writes the greedy texts, token by token; end-of-generation tokens are never chosen.
  f32      the same with every tensor dequantised to F32 first (written to WORKDIR, 1.6 GB): nothing is rounded below F32
           but GELU, which llama.cpp takes from an F16 table. The reference distributions.
  default  the file with llama.cpp's default settings: with q it shows that engine's own noise.
"""
import argparse
import ctypes
import hashlib
import json
import os
import struct

import gguf
import llama_cpp as L
import numpy as np

N_PREDICT = 128   # positions compared per prompt
REST = 0.003      # tokens are stored until what is left has less probability than this,
MAX_TOP = 4096    # but at most so many
N_CTX = 512
N_THREADS = 1

MODELS = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", {
        "story": "Once upon a time, in a small village by the sea, there lived an old fisherman who had never",
        "code": "# Prints the squares of 1 to 10 and their sum, 385.\ndef squares(n):\n    total = 0\n    for i in range(1,",
        "chat": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nQu'est-ce que la photosynth\u00e8se ? "
                "Bitte auch auf Deutsch.<|im_end|>\n<|im_start|>assistant\n",
    }),
    "gemma3-270m": ("gemma-3-270m-q4_k_m.gguf", {
        "story": "It was a cold November evening when the last train left the station, and nobody noticed the boy who",
        "numbers": "| year | city | population |\n| --- | --- | --- |\n| 1990 | Lyon | 415,487 |\n| 1999 | Lyon | 445,452 |\n| 2007 |",
        "multilingual": "English: Good morning, how are you?\nDeutsch: Guten Morgen, wie geht es Ihnen?\n\u65e5\u672c\u8a9e\uff1a"
                        "\u304a\u306f\u3088\u3046\u3054\u3056\u3044\u307e\u3059\u3002\nEspa\u00f1ol:",
    }),
}


class Engine:
    """One model in llama.cpp with one context."""

    def __init__(self, path, near_default=False):
        mp = L.llama_model_default_params()
        mp.n_gpu_layers = 0
        mp.use_extra_bufts = near_default
        self.model = L.llama_model_load_from_file(path.encode(), mp)
        cp = L.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = N_CTX
        cp.n_threads = cp.n_threads_batch = N_THREADS
        if not near_default:
            cp.type_k = cp.type_v = 0   # GGML_TYPE_F32
            cp.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.ctx = L.llama_init_from_model(self.model, cp)
        assert self.model and self.ctx, path
        self.vocab = L.llama_model_get_vocab(self.model)
        self.n_vocab = L.llama_vocab_n_tokens(self.vocab)
        self.add_bos = bool(L.llama_vocab_get_add_bos(self.vocab))
        self.bos = L.llama_vocab_bos(self.vocab)

    def close(self):
        L.llama_free(self.ctx)
        L.llama_model_free(self.model)

    def tokenize(self, text, parse_special):
        data = text.encode()
        ids = (L.llama_token * (len(data) + 8))()
        n = L.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, parse_special)
        assert n > 0
        return list(ids[:n])

    def text(self, ids):
        out = b""
        for i in ids:
            piece = ctypes.create_string_buffer(256)
            n = L.llama_token_to_piece(self.vocab, i, piece, 256, 0, True)
            out += piece.raw[:n]
        return out.decode(errors="replace")

    def eval(self, ids, start=0):
        """Logits [len(ids)][n_vocab] of ids at positions start...; start 0 begins anew."""
        if start == 0:
            L.llama_memory_clear(L.llama_get_memory(self.ctx), True)
        batch = L.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, start + i, 1, 0, 1
        assert L.llama_decode(self.ctx, batch) == 0
        L.llama_batch_free(batch)
        return np.ctypeslib.as_array(L.llama_get_logits(self.ctx), (len(ids), self.n_vocab)).copy()

    def greedy(self, prompt):
        end = [i for i in range(self.n_vocab) if L.llama_vocab_is_eog(self.vocab, i)]
        ids, wanted_end = list(prompt), 0
        logits = self.eval(ids)[-1]
        while len(ids) < len(prompt) + N_PREDICT:
            wanted_end += int(np.argmax(logits)) in end
            logits[end] = -np.inf
            ids.append(int(np.argmax(logits)))
            logits = self.eval(ids[-1:], len(ids) - 1)[0]
        return ids, wanted_end

    def perplexity(self, text):
        """As llama.cpp's tool: disjoint chunks of N_CTX, BOS in place of the first token where the model asks for it,
        the second half of each chunk scored."""
        ids, half = self.tokenize(text, False), N_CTX // 2
        nll, count, chunks, so_far = 0.0, 0, len(ids) // N_CTX, []
        for c in range(chunks):
            chunk = ids[c * N_CTX:(c + 1) * N_CTX]
            if self.add_bos:
                chunk[0] = self.bos
            logp = log_softmax(self.eval(chunk)[half:N_CTX - 1])
            nll -= sum(logp[i, chunk[half + 1 + i]] for i in range(N_CTX - 1 - half))
            count += N_CTX - 1 - half
            so_far.append(round(float(np.exp(nll / count)), 6))
        return {"tokens": len(ids), "scored": count, "after_chunk": so_far}


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def bins(row):
    """ids most likely first, their log-probabilities, the log of the remaining probability."""
    order = np.argsort(-row, kind="stable")
    small = 1 - np.cumsum(np.exp(row[order[:MAX_TOP]])) < REST
    k = max(2, int(np.argmax(small)) + 1 if small.any() else MAX_TOP)
    return order[:k], row[order[:k]], np.log(np.exp(row[order[k:]]).sum())


def write_ref(path, f32, q):
    """Returns the mean number of tokens stored per position."""
    size = 0
    with open(path, "wb") as f:
        for row, as_is in zip(f32, q):
            ids, lp, rest = bins(row)
            two = np.sort(as_is)[-2:]
            f.write(struct.pack("<IffI", int(as_is.argmax()), two[1] - two[0], rest, len(ids)))
            f.write(ids.astype("<u4").tobytes() + np.minimum(np.rint(-4096 * lp), 65535).astype("<u2").tobytes())
            size += len(ids)
    return round(size / len(f32), 1)


def kl_full(ref, got):
    return float((np.exp(ref) * (ref - got)).sum(axis=1).mean())


def kl_binned(ref, got):
    """KL over what write_ref stores: the listed tokens, and all others as one."""
    total = 0.0
    for want, row in zip(ref, got):
        ids, lp, rest = bins(want)
        others = np.delete(row, ids)
        total += (np.exp(lp) * (lp - row[ids])).sum() + np.exp(rest) * (rest - np.log(np.exp(others).sum()))
    return float(total / len(ref))


def wrong_argmax(ref, got):
    """Positions where ref's two most likely tokens lie more than 0.25 apart and got's most likely is another."""
    two = np.sort(ref, axis=1)[:, -2:]
    return int(((two[:, 1] - two[:, 0] > 0.25) & (ref.argmax(axis=1) != got.argmax(axis=1))).sum())


def write_f32(source, target):
    """The model with every tensor dequantised to F32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents(), endianess=gguf.GGUFEndian.LITTLE)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for t in reader.tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        writer.add_tensor(t.name, values.reshape(tuple(reversed(t.shape.tolist()))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def one_model(name, path, prompts, args):
    f32_path = os.path.join(args.work, name + ".f32.gguf")
    if not os.path.exists(f32_path):
        write_f32(path, f32_path + ".tmp")
        os.replace(f32_path + ".tmp", f32_path)
    with open(os.path.join(args.out, "text-20k.txt"), encoding="utf-8") as f:
        text = f.read()
    with open(path, "rb") as f:
        record = {"name": name, "file": os.path.basename(path), "sha256": hashlib.sha256(f.read()).hexdigest(),
                  "prompts": [], "perplexity": {}}
    engines = {"q": Engine(path), "f32": Engine(f32_path), "default": Engine(path, near_default=True)}
    record["n_vocab"], record["add_bos"] = engines["q"].n_vocab, engines["q"].add_bos
    for prompt, words in prompts.items():
        start = engines["q"].tokenize(words, True)
        ids, wanted_end = engines["q"].greedy(start)
        stem = os.path.join(args.out, "%s-%s" % (name, prompt))
        np.array(ids, "<i4").tofile(stem + ".tokens")
        logp = {which: log_softmax(e.eval(ids)[len(start) - 1:len(ids) - 1]) for which, e in engines.items()}
        row = {"name": prompt, "text": words, "n_prompt": len(start), "n_tokens": len(ids), "end_suppressed": wanted_end,
               "greedy": engines["q"].text(ids[len(start):]), "top": write_ref(stem + ".ref", logp["f32"], logp["q"]),
               "binned_of_full": kl_binned(logp["f32"], logp["q"]) / kl_full(logp["f32"], logp["q"])}
        for ref, got in (("f32", "q"), ("f32", "default"), ("q", "default")):
            row["kl_%s_%s" % (ref, got)] = kl_full(logp[ref], logp[got])
            row["wrong_%s_%s" % (ref, got)] = wrong_argmax(logp[ref], logp[got])
        record["prompts"].append(row)
        print(json.dumps(row, ensure_ascii=False), flush=True)
    for which in ("q", "f32"):
        record["perplexity"][which] = engines[which].perplexity(text)
        print(name, which, record["perplexity"][which], flush=True)
    for engine in engines.values():
        engine.close()
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models")
    parser.add_argument("out")
    parser.add_argument("work")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    quiet = L.llama_log_callback(lambda level, text, user: None)
    L.llama_log_set(quiet, ctypes.c_void_p())
    records = [one_model(name, os.path.join(args.models, file), prompts, args) for name, (file, prompts) in MODELS.items()]
    with open(os.path.join(args.out, "manifest.json"), "w", encoding="utf-8") as f:
        json.dump(records, f, indent=1, ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    main()
