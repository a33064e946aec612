"""Files of other tensor types from one file: every matrix of a GGUF file to one type of blocks of 32 values (or f16, bf16, f32), each
value to the nearest that its block can say. Needs numpy. For measurements on real weights (quant_kl.py), not for use: real files
weigh values by what they matter."""
import struct

import numpy as np

ALIGN = 32
SIZES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24),
         "q8_0": (8, 32, 34), "iq4_nl": (20, 32, 18), "bf16": (30, 1, 2)}
NAMES = {number: name for name, (number, _, _) in SIZES.items()}
# The sixteen values of iq4_nl, in steps of a block's scale (GGUF's description).
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def halves(x):
    return x.astype("<f2").view(np.uint8).reshape(len(x), 2)


def nibbles(q):
    """[n, 32] numbers of 4 bits: byte i holds value i below and value i + 16 above."""
    return (q[:, :16] & 15) | ((q[:, 16:] & 15) << 4)


def fifth_bits(q):
    return np.packbits(q >> 4, axis=1, bitorder="little")


def inverse(d):
    return np.divide(1, d, out=np.zeros_like(d), where=d != 0)


def rounded(x):
    """The scale as it is kept."""
    return x.astype(np.float16).astype(np.float32)


def symmetric(x, levels):
    """(scale, numbers 0 .. 2 * levels - 1) with the value of largest magnitude at -levels."""
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)[:, 0]
    d = rounded(largest / -levels)
    return d, np.clip(np.rint(x * inverse(d)[:, None]) + levels, 0, 2 * levels - 1).astype(np.uint8)


def shifted(x, top):
    """(scale, minimum, numbers 0 .. top)"""
    low = rounded(x.min(axis=1))
    d = rounded((x.max(axis=1) - low) / top)
    return d, low, np.clip(np.rint((x - low[:, None]) * inverse(d)[:, None]), 0, top).astype(np.uint8)


# The nearest of them to each half step from -128 to 127.5.
NEAREST = np.abs(np.arange(-256, 256, dtype=np.float32)[:, None] / 2 - IQ4_NL).argmin(axis=1).astype(np.uint8)


def iq4_nl(x):
    def nearest(d):
        return NEAREST[np.clip(np.rint(x * (2 * inverse(d))[:, None]) + 256, 0, 511).astype(np.int16)]
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)[:, 0]
    v = IQ4_NL[nearest(largest / IQ4_NL[0])]
    squares = (v * v).sum(axis=1)
    d = rounded(np.divide((v * x).sum(axis=1), squares, out=np.zeros_like(largest), where=squares > 0))  # what fits these best
    return np.concatenate([halves(d), nibbles(nearest(d))], axis=1)


def encode(kind, x):
    """Bytes of float32 values, whose number the type's block divides."""
    if kind == "f32":
        return x.astype("<f4").tobytes()
    if kind == "f16":
        return x.astype("<f2").tobytes()
    if kind == "bf16":
        bits = np.ascontiguousarray(x, "<f4").view("<u4")
        return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("<u2").tobytes()
    x = x.reshape(-1, 32)
    if kind == "iq4_nl":
        return iq4_nl(x).tobytes()
    if kind == "q8_0":
        d = rounded(np.abs(x).max(axis=1) / 127)
        q = np.clip(np.rint(x * inverse(d)[:, None]), -127, 127).astype(np.int8)
        return np.concatenate([halves(d), q.view(np.uint8)], axis=1).tobytes()
    if kind in ("q4_0", "q5_0"):
        d, q = symmetric(x, 8 if kind == "q4_0" else 16)
        head = [halves(d)]
    else:
        d, low, q = shifted(x, 15 if kind == "q4_1" else 31)
        head = [halves(d), halves(low)]
    return np.concatenate(head + ([fifth_bits(q)] if kind[1] == "5" else []) + [nibbles(q)], axis=1).tobytes()


def decode(kind, data):
    """float32 values of a tensor's bytes."""
    b = np.frombuffer(data, np.uint8)
    if kind == "f32":
        return b.view("<f4")
    if kind == "f16":
        return b.view("<f2").astype(np.float32)
    if kind == "bf16":
        return (b.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    b = b.reshape(-1, SIZES[kind][2])

    def half(at):
        return np.ascontiguousarray(b[:, at:at + 2]).view("<f2").astype(np.float32)

    def numbers(at):
        return np.concatenate([b[:, at:at + 16] & 15, b[:, at:at + 16] >> 4], axis=1)

    def fifth(at):
        return np.unpackbits(b[:, at:at + 4], axis=1, bitorder="little") << 4
    if kind == "q8_0":
        values = half(0) * np.ascontiguousarray(b[:, 2:]).view(np.int8)
    elif kind == "iq4_nl":
        values = half(0) * IQ4_NL[numbers(2)]
    elif kind == "q4_0":
        values = half(0) * (numbers(2).astype(np.float32) - 8)
    elif kind == "q5_0":
        values = half(0) * ((numbers(6) | fifth(2)).astype(np.float32) - 16)
    elif kind == "q4_1":
        values = half(0) * numbers(4) + half(2)
    else:
        values = half(0) * (numbers(8) | fifth(4)) + half(2)
    return values.astype(np.float32).ravel()


class File:
    """A GGUF file: its keys as they stand, its tensors as (name, dims, type, data)."""

    SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, path):
        self.data = np.memmap(path, np.uint8, "r")
        self.at = 0
        if bytes(self.data[:4]) != b"GGUF" or self.number("<I", 4) != 3:
            raise ValueError("%s is no GGUF file of version 3" % path)
        n_tensors, self.n_keys = self.number("<Q", 8), self.number("<Q", 16)
        self.at = 24
        for _ in range(self.n_keys):
            self.string()
            self.value(self.take("<I"))
        self.keys = bytes(self.data[24:self.at])
        found = []
        for _ in range(n_tensors):
            name = self.string()
            dims = [self.take("<Q") for _ in range(self.take("<I"))]
            found.append((name, dims, self.take("<I"), self.take("<Q")))
        start, self.tensors = -(-self.at // ALIGN) * ALIGN, []
        for name, dims, number, offset in found:
            if number not in NAMES:
                raise ValueError("%s: tensor %s has type %d, which is not read here" % (path, name, number))
            _, values, size = SIZES[NAMES[number]]
            count = int(np.prod(dims)) // values * size
            self.tensors.append((name, dims, NAMES[number], self.data[start + offset:start + offset + count]))

    def number(self, form, at):
        return struct.unpack_from(form, self.data, at)[0]

    def take(self, form):
        v = self.number(form, self.at)
        self.at += struct.calcsize(form)
        return v

    def string(self):
        n = self.take("<Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            kind, n = self.take("<I"), self.take("<Q")
            if kind in self.SCALARS:
                self.at += n * self.SCALARS[kind]
            else:
                for _ in range(n):
                    self.value(kind)
        else:
            self.at += self.SCALARS[kind]


def convert(source, kind, path):
    """Writes source's file with every tensor of two dimensions as `kind`; returns the root of the mean squared relative error."""
    f = File(source)
    head, blobs, offset, wrong, all_of_it = [], [], 0, 0.0, 0.0
    for name, dims, old, data in f.tensors:
        new = kind if len(dims) > 1 and dims[0] % SIZES[kind][1] == 0 else old
        blob = data.tobytes()
        if new != old:
            x = decode(old, blob)
            blob = encode(new, x)
            wrong += float(np.square(decode(new, blob) - x, dtype=np.float64).sum())
            all_of_it += float(np.square(x, dtype=np.float64).sum())
        text = name.encode()
        head.append(struct.pack("<Q", len(text)) + text + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, SIZES[new][0], offset))
        blobs.append(blob + bytes(-len(blob) % ALIGN))
        offset += len(blobs[-1])
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(f.tensors), f.n_keys) + f.keys + b"".join(head)
    with open(path, "wb") as out:
        out.write(start + bytes(-len(start) % ALIGN))
        for blob in blobs:
            out.write(blob)
    return (wrong / all_of_it) ** 0.5 if all_of_it else 0.0
