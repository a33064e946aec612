#!/usr/bin/env python3
"""Write the heads of GGUF files of real models' shapes (tests/shapes/*.yaml), without their data.

    make_shape_models.py SPEC SHAPE_DIR OUT_DIR

SPEC is the golden models' spec.txt. A shape says like which golden model it is made (its tensors, its GGUF keys) and the real
sizes; each of its mixes of tensor types gives a file OUT_DIR/NAME-TYPES.head: everything of the GGUF file before its tensors'
data, then the length of the whole file as eight bytes. OUT_DIR/goldens gets the golden models' heads. tests/shapes/shape_model.c opens them, with zeros for the data.
"""
import fnmatch
import os
import struct
import sys

from make_golden_models import ALIGN, key_value, read_spec, string

BLOCK = {"f32": (0, 1, 4), "f16": (1, 1, 2), "bf16": (30, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22),
         "q5_1": (7, 32, 24), "q8_0": (8, 32, 34), "q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "q4_k": (12, 256, 144),
         "q5_k": (13, 256, 176), "q6_k": (14, 256, 210), "iq4_nl": (20, 32, 18), "iq4_xs": (23, 256, 136)}
# What stands for a type whose blocks do not divide the rows.
INSTEAD = {"q2_k": "iq4_nl", "q3_k": "iq4_nl", "iq4_xs": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
# Mixes of types, as llama.cpp names its files: of most matrices; of attn_v and ffn_down in the layers that get more bits, and in
# the others; of attn_qkv; of attn_output; of the output matrix.
MIXES = {"q4_k_m": ("q4_k", "q6_k", "q4_k", "q5_k", "q4_k", "q6_k"), "q5_k_m": ("q5_k", "q6_k", "q5_k", "q6_k", "q5_k", "q6_k"),
         "q3_k_m": ("q3_k", "q5_k", "q4_k", "q4_k", "q4_k", "q6_k"), "q2_k": ("q2_k", "q4_k", "q3_k", "q3_k", "q3_k", "q6_k"),
         "iq4_xs": ("iq4_xs", "q5_k", "iq4_xs", "q5_k", "iq4_xs", "q6_k"), "q6_k": ("q6_k",) * 6, "q8_0": ("q8_0",) * 6,
         "f16": ("f16",) * 6, "bf16": ("bf16",) * 6}
for plain in ("q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"):
    MIXES[plain] = (plain,) * 5 + ("q6_k",)
NUMBERS = ["n_layer", "n_embd", "n_head", "n_head_kv", "head_dim", "v_dim", "n_rot", "n_ff", "n_vocab", "n_ctx", "q_rank", "kv_rank"]
# GGUF keys (behind the architecture's name) that say a size.
SIZE_KEYS = {"vocab_size": "n_vocab", "context_length": "n_ctx", "embedding_length": "n_embd", "block_count": "n_layer",
             "feed_forward_length": "n_ff", "attention.head_count": "n_head", "attention.head_count_kv": "n_head_kv",
             "attention.key_length": "head_dim", "attention.value_length": "v_dim", "rope.dimension_count": "n_rot",
             "attention.q_lora_rank": "q_rank", "attention.kv_lora_rank": "kv_rank"}


def fail(path, number, text):
    sys.exit("%s:%d: %s" % (path, number, text))


def read_shape(path):
    """The subset of YAML that shapes need: `key: value`, one map (keys) of the same, lists in brackets, comments."""
    shape, into = {"keys": {}, "without": []}, None
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            text = line.split("#")[0].rstrip()
            if not text:
                continue
            key, colon, value = text.strip().partition(":")
            value = value.strip()
            if not colon or (text.startswith(" ") and into is None):
                fail(path, number, "expected `key: value`")
            if text.startswith("  "):
                shape["keys"][key] = value
                continue
            into = None
            if key == "keys" and not value:
                into = shape["keys"]
            elif key in ("types", "without") and value.startswith("[") and value.endswith("]"):
                shape[key] = [v.strip().strip('"') for v in value[1:-1].split(",")]
            elif key in NUMBERS and value.isdigit():
                shape[key] = int(value)
            elif key == "tied" and value in ("true", "false"):
                shape[key] = value == "true"
            elif key == "like" and value:
                shape[key] = value
            else:
                fail(path, number, "'%s: %s' is not understood" % (key, value))
    missing = [k for k in ["like", "types", "tied"] + NUMBERS[:5] + ["n_ff", "n_vocab"] if k not in shape]
    if missing:
        fail(path, 1, "'%s' is missing" % missing[0])
    shape.setdefault("v_dim", shape["head_dim"])
    shape.setdefault("n_rot", shape["head_dim"])
    shape.setdefault("n_ctx", 4096)
    return shape


def roles(s, latent):
    """Sizes of a tensor by its name without "blk.*.", and without ".weight"; biases have the second one alone."""
    d, q, k, v = s["n_embd"], s["n_head"] * s["head_dim"], s["n_head_kv"] * s["head_dim"], s["n_head_kv"] * s["v_dim"]
    nope = s["head_dim"] - s["n_rot"]
    table = {"token_embd": (d, s["n_vocab"]), "output": (d, s["n_vocab"]), "position_embd": (d, s["n_ctx"]), "attn_q": (d, q),
             "attn_k": (d, k), "attn_v": (d, v), "attn_qkv": (d, q + k + v), "attn_output": (s["n_head"] * s["v_dim"], d),
             "ffn_gate": (d, s["n_ff"]), "ffn_up": (d, s["n_ff"]), "ffn_down": (s["n_ff"], d)}
    for norm in ("token_embd_norm", "output_norm", "attn_norm", "attn_norm_2", "ffn_norm", "post_attention_norm", "post_ffw_norm"):
        table[norm] = (d,)
    if latent:
        table.update({"attn_q_a": (d, s["q_rank"]), "attn_q_b": (s["q_rank"], q), "attn_kv_a_mqa": (d, s["kv_rank"] + s["n_rot"]),
                      "attn_kv_b": (s["kv_rank"], s["n_head"] * (nope + s["v_dim"])), "attn_q_a_norm": (s["q_rank"],),
                      "attn_kv_a_norm": (s["kv_rank"],)})
    for factors in ("rope_freqs", "rope_factors_long", "rope_factors_short"):
        table[factors] = (s["n_rot"] // 2,)
    return table


def sizes(name, golden_dims, golden, s, table):
    """Real sizes of a golden tensor."""
    role, kind = name.replace("blk.*.", "").rsplit(".", 1)
    if role in ("attn_q_norm", "attn_k_norm"):  # of a head, or of all heads
        heads = s["n_head"] if role == "attn_q_norm" else s["n_head_kv"]
        return (s["head_dim"] if golden_dims[0] == golden["head_dim"] else heads * s["head_dim"],)
    if role not in table:
        sys.exit("make_shape_models.py: no size is known for " + name)
    dims = table[role][-1:] if kind == "bias" else table[role]
    if role == "ffn_up" and kind == "weight" and golden_dims[1] == 2 * golden["n_ff"]:
        return dims[0], 2 * dims[1]
    return dims


def tensor_type(name, dims, layer, s, mix):
    if len(dims) == 1 or "position_embd" in name:
        return "f32"
    most, more, fewer, qkv, out, output = MIXES[mix]
    role, n = name.rsplit(".", 2)[-2], s["n_layer"]
    more_bits = layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2
    kind = {"attn_qkv": qkv, "attn_output": out, "output": output,
            "token_embd": output if s["tied"] else most}.get(role, most)
    if role in ("attn_v", "ffn_down"):
        kind = more if more_bits else fewer
    while dims[0] % BLOCK[kind][1]:
        kind = INSTEAD.get(kind, "f16")
    return kind


def head(s, golden_keys, golden_tensors, mix):
    """The head of the file, and the whole file's length."""
    arch = next(text for _, name, text in golden_keys if name == "general.architecture")
    golden = {SIZE_KEYS[name[len(arch) + 1:]]: int(text) for _, name, text in golden_keys
              if name.startswith(arch + ".") and name[len(arch) + 1:] in SIZE_KEYS and " " not in text}
    golden.setdefault("head_dim", golden["n_embd"] // golden["n_head"])
    keys, changed = [], {arch + "." + k: v for k, v in s["keys"].items()}
    changed.update({arch + "." + k: str(s[size]) for k, size in SIZE_KEYS.items() if size in s})
    for kind, name, text in golden_keys:
        if not any(fnmatch.fnmatchcase(name, arch + "." + w) for w in s["without"]):
            keys.append((kind, name, changed.pop(name, text)))
    for name, text in changed.items():
        if name.endswith((".key_length", ".value_length")) and s["head_dim"] * s["n_head"] == s["n_embd"] or \
                name.endswith(("head_count_kv", "dimension_count")) and name not in [k[1] for k in golden_keys] or \
                any(fnmatch.fnmatchcase(name, arch + "." + w) for w in s["without"]):
            continue  # the architecture's default says the same
        keys.append(("f32" if "." in text or "e" in text else "u32", name, text))
    latent = any("attn_kv_b" in t[0] for t in golden_tensors)
    table, out, names = roles(s, latent), [], set()
    for name, _, dims, _, _ in golden_tensors:
        parts = name.split(".")
        pattern = ".".join(["blk", "*"] + parts[2:]) if parts[0] == "blk" else name
        bare = pattern.replace("blk.*.", "")
        if pattern in names or (s["tied"] and bare == "output.weight") or any(fnmatch.fnmatchcase(bare, w) for w in s["without"]):
            continue
        names.add(pattern)
        real = sizes(pattern, dims, golden, s, table)
        for layer in range(s["n_layer"] if parts[0] == "blk" else 1):
            out.append((pattern.replace("*", str(layer)), real, tensor_type(pattern, real, layer, s, mix)))
    if not s["tied"] and "output.weight" not in names:
        out.append(("output.weight", table["output"], tensor_type("output.weight", table["output"], 0, s, mix)))
    return whole(keys, out)


def whole(keys, out):
    """The head with those keys and tensors (name, sizes, type), and the whole file's length."""
    out.sort(key=lambda t: not t[0].startswith("rope_"))  # factors must not be zero: their data follows the head
    text = [b"GGUF", struct.pack("<IQQ", 3, len(out), len(keys))] + [key_value(*k) for k in keys]
    offset, factors = 0, b""
    for name, dims, kind in out:
        number, values, size = BLOCK[kind]
        text.append(string(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, number, offset))
        count = 1
        for d in dims:
            count *= d
        offset += (count // values * size + ALIGN - 1) // ALIGN * ALIGN
        if name.startswith("rope_"):
            factors += struct.pack("<%df" % count, *[1.0] * count)
            factors += bytes(-len(factors) % ALIGN)
    blob = b"".join(text)
    blob += bytes(-len(blob) % ALIGN)
    return blob + factors, len(blob) + offset


def write_head(path, blob, size):
    with open(path, "wb") as f:
        f.write(blob + struct.pack("<Q", size))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    models = {m[0]: m for m in read_spec(sys.argv[1])}
    goldens = os.path.join(sys.argv[3], "goldens")
    os.makedirs(goldens, exist_ok=True)
    for old in os.listdir(sys.argv[3]):
        if old.endswith(".head"):
            os.remove(os.path.join(sys.argv[3], old))
    n = 0
    for name in sorted(os.listdir(sys.argv[2])):
        if not name.endswith(".yaml"):
            continue
        path = os.path.join(sys.argv[2], name)
        s = read_shape(path)
        if s["like"] not in models:
            fail(path, 2, "there is no golden model '%s'" % s["like"])
        for mix in s["types"]:
            if mix not in MIXES:
                fail(path, 3, "there is no mix of types '%s'" % mix)
            blob, size = head(s, models[s["like"]][2], models[s["like"]][3], mix)
            write_head(os.path.join(sys.argv[3], "%s-%s.head" % (name[:-5], mix)), blob, size)
            n += 1
    for name, _, keys, tensors in models.values():
        write_head(os.path.join(goldens, name + ".head"), *whole(keys, [(t[0], t[2], t[1]) for t in tensors]))
    print("%d heads of shapes, %d of golden models" % (n, len(models)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
