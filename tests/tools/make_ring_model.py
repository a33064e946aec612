#!/usr/bin/env python3
"""make_ring_model.py OUT.gguf: two layers whose products go through the persistent kernel's ring in every way
(tests/data/README.md): types that do and types that do not, in one product and in one gated pair. Needs numpy.
The logits beside it: quern logits OUT.gguf --backend cpu --exact --tokens llama-ring.tokens -o llama-ring.xlogits"""
import importlib.util
import os
import struct
import sys
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("synthetic", os.path.join(here, "../../scripts/make_synthetic_gguf.py"))
syn = importlib.util.module_from_spec(spec)
spec.loader.exec_module(syn)

D, FF, HEADS, KV, DIM, VOCAB, LAYERS = 256, 512, 4, 1, 64, 90, 2  # 30 rows of the head a block (of 3): two stages, whole
TYPES = [  # by layer: of q4_K and q5_K rows of 256 values are whole pieces of 16 bytes in each plane, of q6_K they are not
    {"attn_q": syn.Q4_K, "attn_k": syn.Q4_K, "attn_v": syn.Q6_K, "ffn_gate": syn.Q6_K, "ffn_up": syn.Q4_K, "ffn_down": syn.Q5_K},
    {"attn_q": syn.Q5_K, "attn_k": syn.Q4_K, "attn_v": syn.Q4_K, "ffn_gate": syn.Q4_K, "ffn_up": syn.Q4_K, "ffn_down": syn.Q4_K},
]


def main():
    rng = np.random.default_rng(7)
    tensors = [("token_embd.weight", (D, VOCAB), syn.Q4_K), ("output_norm.weight", (D,), syn.F32), ("output.weight", (D, VOCAB), syn.Q4_K)]
    for i in range(LAYERS):
        p = "blk.%d." % i
        tensors += [(p + n + ".weight", (D,), syn.F32) for n in ("attn_norm", "ffn_norm")]
        for n, ne in (("attn_q", (D, HEADS * DIM)), ("attn_k", (D, KV * DIM)), ("attn_v", (D, KV * DIM)), ("attn_output", (HEADS * DIM, D)),
                      ("ffn_gate", (D, FF)), ("ffn_up", (D, FF)), ("ffn_down", (FF, D))):
            tensors.append((p + n + ".weight", ne, TYPES[i].get(n, syn.Q4_K)))
    keys = [("general.architecture", syn.STRING, "llama"), ("general.name", syn.STRING, "llama-ring"), ("general.alignment", syn.U32, 32)]
    for k, t, v in (("block_count", syn.U32, LAYERS), ("context_length", syn.U32, 256), ("embedding_length", syn.U32, D),
                    ("feed_forward_length", syn.U32, FF), ("attention.head_count", syn.U32, HEADS), ("attention.head_count_kv", syn.U32, KV),
                    ("rope.dimension_count", syn.U32, DIM), ("attention.layer_norm_rms_epsilon", syn.FLOAT32, 1e-5), ("vocab_size", syn.U32, VOCAB)):
        keys.append(("llama." + k, t, v))
    keys.append(("tokenizer.ggml.model", syn.STRING, "no_vocab"))

    def text(x):
        return struct.pack("<Q", len(x)) + x.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for k, t, v in keys:
        head += text(k) + struct.pack("<I", t) + (text(v) if t == syn.STRING else struct.pack("<I" if t == syn.U32 else "<f", v))
    body = b""
    for name, ne, t in tensors:
        elems, size = syn.BLOCK[t]
        n = int(np.prod(ne)) // elems
        head += text(name) + struct.pack("<I", len(ne)) + b"".join(struct.pack("<Q", x) for x in ne) + struct.pack("<IQ", t, len(body))
        data = syn.random_blocks(t, n, rng, 1.0 if name == "token_embd.weight" else float(0.9 / np.sqrt(ne[0])))
        body += data + b"\0" * (-len(data) % 32)
    with open(sys.argv[1], "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + body)


main()
