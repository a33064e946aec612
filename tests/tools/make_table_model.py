#!/usr/bin/env python3
"""Write a llama GGUF whose next-token logits are a lookup table of the last token.

The branches of its one block are zero and its embedding rows are one-hot, so the final norm gives
sqrt(N_EMBD) in the place of the last token and the output matrix is the table, exactly (all values are
multiples of powers of two). Sampling, end tokens, stop strings, streaming and context rules can thus be
tested to the letter.

    make_table_model.py OUT.gguf [--context N] [--no-bos] [--space-prefix] [--no-tokenizer] [--vocab-only] [--nan]
                                 [--arch NAME] [--tokenizer NAME] [--chat-template FILE] [--think]

Whatever follows a token is its entry in CHAINS; every other token has logit 0 there.
"""
import argparse
import struct

N_EMBD = 1024  # its root is 32, a power of two
U32, I32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
BLANK = "\u2581"

# Control tokens first, then one token a byte, then pieces.
CONTROLS = ["<unk>", "<s>", "</s>", "<|eot|>", "<|note|>"]
PIECES = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L",
          BLANK + "Hello", BLANK + "world", "!", "x", "y", "z", "ab", "cST", "OPde", "STOX", "é", "日本",
          "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", BLANK + "Hi", "there", BLANK, "\n", "\\", "n"]


def byte(b):
    return "<0x%02X>" % b


TOKENS = CONTROLS + [byte(b) for b in range(256)] + PIECES
ID = {t: i for i, t in enumerate(TOKENS)}
EMOJI = "\U0001F600".encode()  # four bytes, each a token of its own

# token: {next: logit}. The table knows only the last token, so chains that must not meet use tokens of their own.
CHAINS = {
    "<s>": {BLANK + "Hi": 20},
    BLANK + "Hi": {"</s>": 20, "there": 10},
    "there": {"</s>": 20},
    # "A" -> " Hello world!" and the first end token.
    "A": {BLANK + "Hello": 20}, BLANK + "Hello": {BLANK + "world": 20}, BLANK + "world": {"!": 20}, "!": {"</s>": 20},
    # "B" -> an emoji in four pieces, a whole é, 日本, end.
    "B": {byte(EMOJI[0]): 20}, byte(EMOJI[0]): {byte(EMOJI[1]): 20}, byte(EMOJI[1]): {byte(EMOJI[2]): 20},
    byte(EMOJI[2]): {byte(EMOJI[3]): 20}, byte(EMOJI[3]): {"é": 20}, "é": {"日本": 20}, "日本": {"</s>": 20},
    # "C" -> "xyzxyz..." without end.
    "C": {"x": 20}, "x": {"y": 20}, "y": {"z": 20}, "z": {"x": 20},
    # "D" -> "abcSTOPde" and the end, STOP across two tokens.
    "D": {"ab": 20}, "ab": {"cST": 20}, "cST": {"OPde": 20}, "OPde": {"</s>": 20},
    # "E" -> the second end token; without end tokens "STOX" again and again.
    "E": {"<|eot|>": 20, "STOX": 10}, "STOX": {"</s>": 20, "<|eot|>": 19, "STOX": 10},
    # "F" -> digits: 0 to 3 with 1/2, 1/4, 1/8, 1/8 (logits near enough), for ever.
    # "G" -> the first two bytes of a three-byte character, then the end.
    "G": {byte(0xE6): 20}, byte(0xE6): {byte(0x97): 20}, byte(0x97): {"</s>": 20},
    # "H" -> a control token, which has no text, then "there" and the end.
    "H": {"<|note|>": 20}, "<|note|>": {"there": 20},
    # "I" -> a byte that begins no character, then "there".
    "I": {byte(0xFF): 20}, byte(0xFF): {"there": 20},
    # "J" -> NUL, then "there".
    "J": {byte(0x00): 20}, byte(0x00): {"there": 20},
}
# With --think: tags, and words for a thought. "Q" opens one, which says "hm", "so" and ends with "Hello world!" as the
# answer; a thought that is cut short goes on with a newline, then "B".
THINK = ["<think>", "</think>", "hm", "so", "Q"]
THINK_CHAINS = {"Q": {"<think>": 20}, "<think>": {"hm": 20}, "hm": {"so": 20}, "so": {"</think>": 20},
                "</think>": {BLANK + "Hello": 20}, "\n": {"B": 20}}
THINK_ID = {t: len(TOKENS) + i for i, t in enumerate(THINK)}
for t in "F0123":
    CHAINS[t] = {"0": 20, "1": 19.3125, "2": 18.625, "3": 18.625}


def parser():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--context", type=int, default=64)
    ap.add_argument("--no-bos", action="store_true")
    ap.add_argument("--space-prefix", action="store_true")
    ap.add_argument("--no-tokenizer", action="store_true")
    ap.add_argument("--vocab-only", action="store_true")
    ap.add_argument("--nan", action="store_true", help="one NaN in the table")
    ap.add_argument("--arch", default="llama")
    ap.add_argument("--tokenizer", default="llama", help="tokenizer.ggml.model")
    ap.add_argument("--chat-template", help="file with the Jinja text")
    ap.add_argument("--think", action="store_true", help="the vocabulary has tags of thoughts")
    return ap


def main():
    write(parser().parse_args())


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STRING:
        return text(v)
    return struct.pack({U32: "<I", I32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], v)


def metadata(a):
    arch = a.arch
    kv = [("general.architecture", STRING, arch), ("general.name", STRING, "lookup table")]
    for key, kind, v in (("block_count", U32, 1), ("context_length", U32, a.context), ("embedding_length", U32, N_EMBD),
                         ("feed_forward_length", U32, 32), ("attention.head_count", U32, 2),
                         ("attention.head_count_kv", U32, 1), ("attention.key_length", U32, 32),
                         ("attention.value_length", U32, 32), ("rope.dimension_count", U32, 32),
                         ("attention.layer_norm_rms_epsilon", FLOAT32, 1e-6), ("vocab_size", U32, len(TOKENS) + len(THINK) * a.think)):
        kv.append((arch + "." + key, kind, v))
    if a.no_tokenizer:
        return kv + [("tokenizer.ggml.model", STRING, "no_vocab")]
    kinds = [UNKNOWN] + [CONTROL] * (len(CONTROLS) - 1) + [BYTE] * 256 + [NORMAL] * len(PIECES)
    scores = [0.0] * (len(TOKENS) - len(PIECES)) + [-float(i) for i in range(len(PIECES))]
    tokens = TOKENS
    if a.think:
        tokens = TOKENS + THINK
        kinds += [USER_DEFINED] * 2 + [NORMAL] * (len(THINK) - 2)
        scores += [0.0] * 2 + [-1000.0 - i for i in range(len(THINK) - 2)]
    if a.chat_template:
        with open(a.chat_template, encoding="utf-8") as f:
            kv.append(("tokenizer.chat_template", STRING, f.read()))
    return kv + [
        ("tokenizer.ggml.model", STRING, a.tokenizer),
        ("tokenizer.ggml.tokens", (ARRAY, STRING), tokens),
        ("tokenizer.ggml.scores", (ARRAY, FLOAT32), scores),
        ("tokenizer.ggml.token_type", (ARRAY, I32), kinds),
        ("tokenizer.ggml.bos_token_id", U32, ID["<s>"]),
        ("tokenizer.ggml.eos_token_id", U32, ID["</s>"]),
        ("tokenizer.ggml.eot_token_id", U32, ID["<|eot|>"]),
        ("tokenizer.ggml.unknown_token_id", U32, ID["<unk>"]),
        ("tokenizer.ggml.add_bos_token", BOOL, not a.no_bos),
        ("tokenizer.ggml.add_eos_token", BOOL, False),
        ("tokenizer.ggml.add_space_prefix", BOOL, a.space_prefix),
    ]


def matrix(n_in, rows):
    """rows: {row: {column: value}}, as float32."""
    data = bytearray(4 * n_in * len(rows))
    for r, columns in rows.items():
        for c, v in columns.items():
            struct.pack_into("<f", data, 4 * (r * n_in + c), v)
    return (n_in, len(rows)), bytes(data)


def tensors(a):
    ids = {**ID, **(THINK_ID if a.think else {})}
    n = len(ids)
    out = {r: {} for r in range(n)}
    for last, following in {**CHAINS, **(THINK_CHAINS if a.think else {})}.items():
        for token, logit in following.items():
            out[ids[token]][ids[last]] = logit / 32
    if a.nan:
        out[ID["z"]][ID["L"]] = float("nan")
    ones = struct.pack("<f", 1) * N_EMBD

    def zeros(*ne):
        count = 1
        for x in ne:
            count *= x
        return ne, bytes(4 * count)

    b = "blk.0."
    return [("token_embd.weight",) + matrix(N_EMBD, {r: {r: 1024.0} for r in range(n)}),
            ("output.weight",) + matrix(N_EMBD, out), ("output_norm.weight", (N_EMBD,), ones),
            (b + "attn_norm.weight", (N_EMBD,), ones), (b + "ffn_norm.weight", (N_EMBD,), ones),
            (b + "attn_q.weight",) + zeros(N_EMBD, 64), (b + "attn_k.weight",) + zeros(N_EMBD, 32),
            (b + "attn_v.weight",) + zeros(N_EMBD, 32), (b + "attn_output.weight",) + zeros(64, N_EMBD),
            (b + "ffn_gate.weight",) + zeros(N_EMBD, 32), (b + "ffn_up.weight",) + zeros(N_EMBD, 32),
            (b + "ffn_down.weight",) + zeros(32, N_EMBD)]


def pack(kv, ts, align=32, version=3, order="<", n_kv=None, n_tensors=None):
    """The bytes of a GGUF. kv: (key, type, value); ts: (name, shape, bytes) or (name, shape, bytes, tensor type). The counts
    are what the header says where it is to lie."""
    head = b"GGUF" + struct.pack(order + "IQQ", version, len(ts) if n_tensors is None else n_tensors,
                                 len(kv) if n_kv is None else n_kv)
    for key, kind, v in kv:
        head += text(key)
        if isinstance(kind, tuple):
            head += struct.pack("<IIQ", ARRAY, kind[1], len(v)) + b"".join(value(kind[1], x) for x in v)
        else:
            head += struct.pack("<I", kind) + value(kind, v)
    offset, body = 0, b""
    for name, ne, data, *kind in ts:
        head += text(name) + struct.pack("<I", len(ne)) + b"".join(struct.pack("<Q", x) for x in ne)
        head += struct.pack("<IQ", kind[0] if kind else 0, offset)
        body += data + b"\0" * (-len(data) % align)
        offset = len(body)
    return head + b"\0" * (-len(head) % align) + body


def write(a):
    with open(a.out, "wb") as f:
        f.write(pack(metadata(a), [] if a.vocab_only else tensors(a)))


if __name__ == "__main__":
    main()
