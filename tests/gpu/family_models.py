"""Files of a real size for families.py: each golden model (tests/data/goldens/archs/spec.txt) with its own tensors, keys and
choices, its sizes replaced by those of a model of several thousand values a token, and the llama of the same shape. Weights are
Q4_K (the output matrix Q6_K) as random as one repeated megabyte; what they say is noise, and speed does not hang on it."""
import os
import random
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "tools"))
from make_golden_models import ALIGN, key_value, read_spec, string  # noqa: E402
from make_shape_models import BLOCK, INSTEAD  # noqa: E402

SPEC = os.path.join(ROOT, "tests", "data", "goldens", "archs", "spec.txt")
# What every model has unless SHAPES says otherwise. ff: with a gate; without one a feed-forward of two matrices is half as wide
# again, so that it has as many weights. kv: "golden" follows the golden model (all heads, one, or a quarter of them).
DEFAULT = {"embd": 4096, "layers": 6, "heads": 32, "kv": "golden", "head": 128, "ff": 12288, "vocab": 32000, "ctx": 4096,
           "window": 1024, "per_layer": 256, "original_ctx": 1024}
DEEP = {"embd": 1024, "heads": 8, "ff": 3072}  # of models whose choices hang on their number of layers
SMALL_HEADS = {"embd": 2560, "heads": 32, "head": 80, "ff": 6144}
SHAPES = {
    "baichuan-13b": dict(DEEP, layers=40), "command-r-plus": dict(DEEP, layers=64), "exaone4-64l": dict(DEEP, layers=64),
    "gemma2-27b": dict(DEEP, layers=46, kv=4), "gemma3-27b": dict(DEEP, layers=62, kv=4),
    "gemma": {"heads": 16, "kv": 8, "head": 256}, "gemma2": {"heads": 16, "kv": 8, "head": 256},
    "gemma3": {"heads": 16, "kv": 8, "head": 256}, "gemma4-12b": {"heads": 16, "kv": 8, "head": 256},
    "gemma4-31b": {"heads": 16, "kv": 8, "head": 256},
    "gemma4-e2b": {"embd": 2048, "layers": 10, "heads": 8, "kv": 1, "head": 256, "ff": 6144},
    "gemma4-e4b": {"embd": 2048, "layers": 8, "heads": 8, "kv": 2, "head": 256, "ff": 8192},
    "gemma3n": {"embd": 2048, "layers": 22, "heads": 8, "kv": 2, "head": 256, "ff": 8192},
    "phi2": SMALL_HEADS, "stablelm": SMALL_HEADS, "stablelm-12b": {"embd": 5120, "head": 160},
    "gpt2": {"embd": 2048, "head": 64, "ff": 6144}, "refact": {"embd": 2048, "head": 64, "ff": 6144},
    "falcon": {"heads": 64, "head": 64}, "falcon-40b": {"heads": 64, "head": 64},
    "openelm": {"embd": 3072, "layers": 8, "heads": 12, "kv": 3, "ff": 4096}, "deci": {"layers": 10, "kv": 16},
    "minicpm3": {"embd": 2560, "heads": 40, "head": 96, "value": 64, "rot": 32, "q_rank": 768, "kv_rank": 256, "ff": 6144},
}
# The llama that stands beside a model whose layers differ from each other, or which has other products.
LLAMA = {"openelm": {"heads": 16, "kv": 8, "ff": 7168}, "deci": {"kv": 8}, "minicpm3": {"head": 64},
         "gemma4-e2b": {"ff": 9216}, "gemma4-e4b": {"ff": 12288}}
# Goldens that differ from another one of their family by constants alone.
SAME_GRAPH = {"llama", "llama-linear", "llama-yarn", "llama-ropefreqs", "llama-longrope", "qwen2-yarn", "phi3-longrope-short",
              "hunyuan-dense-alpha", "granite-nope"}
TINY = {"embd": 256, "heads": 4, "head": 64, "ff": 512, "vocab": 512, "ctx": 256, "window": 32, "original_ctx": 64,
        "q_rank": 256, "kv_rank": 256}


class Golden:
    """A golden model's keys and its tensors by layer (None: of no layer)."""

    def __init__(self, name, keys, tensors):
        self.name = name
        self.keys = keys
        self.arch = next(text for _, key, text in keys if key == "general.architecture")
        self.tensors = {}
        for tensor, kind, dims, _, _ in tensors:
            parts = tensor.split(".")
            layer = int(parts[1]) if parts[0] == "blk" else None
            self.tensors.setdefault(layer, []).append((".".join(parts[2:]) if parts[0] == "blk" else tensor, kind, dims))
        self.embd, self.layers = self.number("embedding_length"), self.number("block_count")
        self.heads = self.number("attention.head_count")
        self.kv = self.number("attention.head_count_kv", self.heads)
        self.head = self.number("attention.key_length_swa", self.number("attention.key_length", self.embd // self.heads))
        self.ff = [self.width(i) for i in range(self.layers)]
        first = {t[0]: t[2] for t in self.tensors[0]}
        self.gated = "ffn_gate.weight" in first or first["ffn_up.weight"][1] == 2 * self.ff[0]
        self.norm_heads_apart = len(first.get("attn_q_norm.weight", [])) == 2
        self.tied = not any(t[0] == "output.weight" for t in self.tensors[None])

    def values(self, key):
        return next((text.split() for _, name, text in self.keys if name == self.arch + "." + key), None)

    def number(self, key, default=None):
        """Of an array the first one."""
        values = self.values(key)
        return int(values[0]) if values else default

    def layer_number(self, key, layer, default=None):
        values = self.values(key)
        return default if values is None else int(values[layer] if len(values) > 1 else values[0])

    def width(self, layer):
        return next((dims[0] for name, _, dims in self.tensors[layer] if name == "ffn_down.weight"), 0) \
            if layer in self.tensors else 0


def goldens():
    """By name, in the order of the specification."""
    return {name: Golden(name, keys, tensors) for name, _, keys, tensors in read_spec(SPEC)}


def shape_of(g, tiny=False):
    s = dict(DEFAULT, **SHAPES.get(g.name, {}))
    if tiny:
        s.update(TINY)
        s["layers"] = g.layers
        if "value" in s:
            s.update(value=32, rot=16)
        if isinstance(s["kv"], int):
            s["kv"] = max(1, s["heads"] * g.kv // g.heads)
    if s["kv"] == "golden":
        s["kv"] = s["heads"] if g.kv == g.heads else 1 if g.kv == 1 and g.heads == 4 else s["heads"] // 4
    s.setdefault("value", s["head"])
    s.setdefault("rot", None)
    if not g.gated:
        s["ff"] = s["ff"] * 3 // 2
    return s


def llama_of(g, s):
    """The shape of the llama beside g: (embd, layers, heads, kv, head, ff, vocab, tied)."""
    s = dict(s, **({} if s["vocab"] == TINY["vocab"] else LLAMA.get(g.name, {})))
    return (s["embd"], s["layers"], s["heads"], s["kv"], s["head"], s["ff"] if g.gated else s["ff"] * 2 // 3, s["vocab"],
            g.tied)


class Layer:
    """Real sizes of one layer, from those of the golden layer that it follows."""

    def __init__(self, g, s, golden_layer):
        def scaled(real, golden, own):
            return real * own // golden
        at = golden_layer if golden_layer is not None else 0
        self.heads = scaled(s["heads"], g.heads, g.layer_number("attention.head_count", at, g.heads))
        self.kv = scaled(s["kv"], g.kv, g.layer_number("attention.head_count_kv", at, g.kv))
        self.ff = scaled(s["ff"], g.ff[0], g.ff[at])
        dims = next((d for name, _, d in g.tensors.get(at, []) if name == "attn_q.weight"), None)
        own = dims[1] // g.layer_number("attention.head_count", at, g.heads) if dims else g.head
        self.golden_head, self.golden_ff = own, g.ff[at]
        self.head, self.value = scaled(s["head"], g.head, own), scaled(s["value"], g.head, own)
        if s["value"] != s["head"]:
            self.value = s["value"]


def tensor_dims(name, dims, g, s, at):
    """Real sizes of a golden tensor in layer `at`."""
    d, p, rot = s["embd"], s["per_layer"], rotated(g, s)
    q, k, v = at.heads * at.head, at.kv * at.head, at.kv * at.value
    role = name.rsplit(".", 1)[0]
    if role in ("attn_q_norm", "attn_k_norm"):  # of a head, of each head apart, or over all of them
        heads = at.heads if role == "attn_q_norm" else at.kv
        if g.norm_heads_apart:
            return [1 if dims[0] == 1 else at.head, heads]
        return [at.head if dims[0] == at.golden_head else heads * at.head]
    if dims == [1] or role in ("altup_correct_coef", "altup_predict_coef"):
        return dims
    matrices = {"token_embd": (d, s["vocab"]), "output": (d, s["vocab"]), "position_embd": (d, s["ctx"]), "attn_q": (d, q),
                "attn_k": (d, k), "attn_v": (d, v), "attn_qkv": (d, q + k + v), "attn_output": (at.heads * at.value, d),
                "ffn_gate": (d, at.ff), "ffn_up": (d, at.ff), "ffn_down": (at.ff, d), "inp_gate": (d, p), "proj": (p, d),
                "per_layer_token_embd": (p * s["layers"], s["vocab"]), "per_layer_model_proj": (d, p * s["layers"]),
                "per_layer_proj_norm": (p,), "altup_proj": (d, d, 3), "altup_unembd_proj": (d, d, 3), "altup_router": (d, 4),
                "laurel_l": (d, 64), "laurel_r": (64, d), "ffn_sub_norm": (at.ff,), "attn_sub_norm": (at.heads * at.value,),
                "ffn.act": (at.ff,), "rope_freqs": (rot // 2,), "rope_factors_long": (rot // 2,),
                "rope_factors_short": (rot // 2,)}
    if "q_rank" in s:
        matrices.update({"attn_q_a": (d, s["q_rank"]), "attn_q_b": (s["q_rank"], q), "attn_kv_a_mqa": (d, s["kv_rank"] + rot),
                         "attn_kv_b": (s["kv_rank"], at.heads * (at.head - rot + at.value)), "attn_q_a_norm": (s["q_rank"],),
                         "attn_kv_a_norm": (s["kv_rank"],)})
    if role in matrices:
        real = list(matrices[role])
        if role == "ffn_up" and len(dims) == 2 and dims[1] == 2 * at.golden_ff:
            real[1] *= 2
        return real if len(dims) == len(real) else real[-1:]
    if dims == [g.embd]:
        return [d]
    sys.exit("family_models.py: %s: no size is known for %s" % (g.name, name))


def rotated(g, s):
    if s["rot"]:
        return s["rot"]
    longest = g.number("attention.key_length", g.head)
    return g.number("rope.dimension_count", longest) * s["head"] // g.head


def tensor_type(name, golden_kind, dims, tied):
    role = name.rsplit(".", 1)[0]
    if len(dims) == 1 or "norm" in role or role in ("position_embd", "altup_router") or "coef" in role:
        return golden_kind if len(dims) > 1 and role not in ("position_embd",) else "f32"
    kind = "q6_k" if role == "output" or (role == "token_embd" and tied) else "q4_k"
    while dims[0] % BLOCK[kind][1]:
        kind = INSTEAD.get(kind, "f16")
    return kind


def layer_map(g, layers):
    """The golden layer that each real one follows."""
    return [i * g.layers // layers if layers % g.layers == 0 else i % g.layers for i in range(layers)]


def real_keys(g, s):
    """The golden model's keys with real sizes."""
    follow = layer_map(g, s["layers"])
    at = [Layer(g, s, i) for i in follow]
    doubled = 2 if g.number("feed_forward_length") == 2 * g.ff[0] else 1
    one = {"vocab_size": s["vocab"], "context_length": s["ctx"], "embedding_length": s["embd"], "block_count": s["layers"],
           "attention.sliding_window": s["window"], "embedding_length_per_layer_input": s["per_layer"],
           "rope.scaling.original_context_length": s["original_ctx"], "attention.q_lora_rank": s.get("q_rank"),
           "attention.kv_lora_rank": s.get("kv_rank")}
    each = {"feed_forward_length": [doubled * l.ff for l in at], "attention.head_count": [l.heads for l in at],
            "attention.head_count_kv": [l.kv for l in at]}
    lengths = ("attention.key_length", "attention.value_length", "rope.dimension_count", "rope.dimension_sections")
    keys = []
    for kind, name, text in g.keys:
        key, values = name[len(g.arch) + 1:] if name.startswith(g.arch + ".") else name, text.split()
        if key in one and text != "0":
            values = [str(one[key])]
        elif key in each:
            values = [str(v) for v in (each[key] if kind.endswith("[]") else each[key][:1])]
        elif key.removesuffix("_swa") in lengths:
            real = s["value"] if "value" in key and "rot" in s and s["rot"] else s["head"]
            values = [str(s["rot"] if "rope" in key and s["rot"] else int(v) * real // g.head) for v in values]
            if "value" in key and s["rot"]:
                values = [str(s["value"])]
        elif kind.endswith("[]") and len(values) == g.layers and g.layers > 1:
            values = [values[i] for i in follow]
        keys.append((kind, name, text if kind == "str" else " ".join(values)))
    return keys


def family_file(g, s):
    """(keys, tensors) of the file, each tensor (name, dims, type)."""
    tensors = []
    for name, kind, dims in g.tensors[None]:
        real = tensor_dims(name, dims, g, s, Layer(g, s, None))
        tensors.append((name, real, tensor_type(name, kind, real, g.tied)))
    for i, golden_layer in enumerate(layer_map(g, s["layers"])):
        at = Layer(g, s, golden_layer)
        for name, kind, dims in g.tensors.get(golden_layer, []):
            real = tensor_dims(name, dims, g, s, at)
            tensors.append(("blk.%d.%s" % (i, name), real, tensor_type(name, kind, real, g.tied)))
    return real_keys(g, s), tensors


def llama_file(shape):
    embd, layers, heads, kv, head, ff, vocab, tied = shape
    sizes = {"vocab_size": vocab, "context_length": DEFAULT["ctx"], "embedding_length": embd, "block_count": layers,
             "feed_forward_length": ff, "attention.head_count": heads, "attention.head_count_kv": kv,
             "attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head}
    keys = [("str", "general.architecture", "llama"), ("str", "tokenizer.ggml.model", "no_vocab"),
            ("f32", "llama.attention.layer_norm_rms_epsilon", "1e-05"), ("f32", "llama.rope.freq_base", "10000")]
    keys += [("u32", "llama." + k, str(v)) for k, v in sizes.items()]
    tensors = [("token_embd.weight", [embd, vocab]), ("output_norm.weight", [embd])]
    tensors += [] if tied else [("output.weight", [embd, vocab])]
    for i in range(layers):
        p = "blk.%d." % i
        tensors += [(p + "attn_norm.weight", [embd]), (p + "attn_q.weight", [embd, heads * head]),
                    (p + "attn_k.weight", [embd, kv * head]), (p + "attn_v.weight", [embd, kv * head]),
                    (p + "attn_output.weight", [heads * head, embd]), (p + "ffn_norm.weight", [embd]),
                    (p + "ffn_gate.weight", [embd, ff]), (p + "ffn_up.weight", [embd, ff]), (p + "ffn_down.weight", [ff, embd])]
    return keys, [(name, dims, tensor_type(name.split(".", 2)[-1] if name.startswith("blk") else name, "f16", dims, tied))
                  for name, dims in tensors]


def pattern(kind, name, rows):
    """About a megabyte of blocks whose values have a deviation of 0.9 / sqrt(rows); of norms around 1, of biases small."""
    rng, (_, _, size) = random.Random(1), BLOCK[kind]
    if name.startswith("rope_"):
        return struct.pack("<1024f", *[1 + i / 64 for i in range(1024)])
    std = 1.0 if name == "token_embd.weight" else 0.9 / rows ** 0.5
    if kind in ("f32", "f16"):
        mean = 0 if name.endswith("bias") or rows > 1 and "norm" not in name and "scale" not in name else 1
        return struct.pack("<8192" + ("f" if kind == "f32" else "e"), *[rng.gauss(mean, min(std, 0.1)) for _ in range(8192)])
    n = (1 << 20) // size
    blocks = bytearray(rng.randbytes(n * size))
    half = 7.5 * 0.8 * 36
    scales = {"q4_k": (0, struct.pack("<2e", std / half, 7.5 * std / half)), "q6_k": (208, struct.pack("<e", std / (74 * 18.5))),
              "q8_0": (0, struct.pack("<e", std / 74)), "q5_0": (0, struct.pack("<e", std / 9.2))}
    at, scale = scales[kind]
    for i in range(at, n * size, size):
        blocks[i:i + len(scale)] = scale
    return bytes(blocks)


def write(path, keys, tensors, sparse=False):
    """The GGUF file; sparse: zeros for the weights, which take no room (factors of RoPE must not be zero)."""
    head, offset, sizes, patterns = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))], 0, [], {}
    head += [key_value(*k) for k in keys]
    for name, dims, kind in tensors:
        number, values, size = BLOCK[kind]
        head.append(string(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, number, offset))
        count = 1
        for n in dims:
            count *= n
        sizes.append(count // values * size)
        offset += -(-sizes[-1] // ALIGN) * ALIGN
    blob = b"".join(head)
    blob += bytes(-len(blob) % ALIGN)
    with open(path, "wb") as f:
        f.write(blob)
        for (name, dims, kind), size in zip(tensors, sizes):
            end = f.tell() + -(-size // ALIGN) * ALIGN
            if not sparse or name.startswith("rope_"):
                key = (kind, dims[0], name.startswith("rope_"), name.endswith("bias"), name == "token_embd.weight", "norm" in name)
                if key not in patterns:
                    patterns[key] = pattern(kind, name, dims[0] if len(dims) > 1 else 1)
                whole, rest = divmod(size, len(patterns[key]))
                for _ in range(whole):
                    f.write(patterns[key])
                f.write(patterns[key][:rest])
            f.seek(end)
        f.truncate(end)
    return len(blob) + offset
