#!/usr/bin/env python3
"""Folders of GPT-OSS in MXFP4 as it is published, and the same with the decoded values; no package is needed.

The decoder is written from the OCP Microscaling Formats (MX) Specification 1.0: an element E2M1 has a sign, two bits of
exponent with bias 1 and one of mantissa; a scale E8M0 is 2^(s - 127). In a byte the first element has the low four bits.

mxfp4.py make DIR                DIR/mx in MXFP4 in two files, DIR/bf16 and DIR/fp32 with its values, transposed to (in, out)
mxfp4.py same FOLDER OTHER       every tensor has the same values, bit for bit but for the sign of a zero, whatever the type
mxfp4.py spoil FROM TO KIND      TO: a copy of FROM with one tensor damaged"""
import json
import math
import os
import random
import shutil
import struct
import sys

SIZE = {"F32": 4, "BF16": 2, "U8": 1}
EXPERTS, LAYERS, HIDDEN, FFN, VOCAB, HEADS, KV, DIM = 4, 2, 64, 96, 40, 4, 2, 16
CONFIG = dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=HIDDEN, num_hidden_layers=LAYERS,
              num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=DIM, intermediate_size=FFN, vocab_size=VOCAB,
              num_local_experts=EXPERTS, num_experts_per_tok=2, experts_per_token=2, router_aux_loss_coef=0.01, attention_bias=True,
              sliding_window=5, swiglu_limit=7.0, layer_types=["sliding_attention", "full_attention"], hidden_act="silu",
              rms_norm_eps=1e-5, max_position_embeddings=16, initial_context_length=4, rope_theta=150000, tie_word_embeddings=False,
              rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=4, beta_fast=32.0, beta_slow=1.0,
                                truncate=False))
QUANTIZED = dict(modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
                 quant_method="mxfp4")
UNUSED = EXPERTS - 1  # an expert that no token is sent to: it has the largest and the smallest scales


def element(code):
    sign, exponent, mantissa = -1.0 if code & 8 else 1.0, code >> 1 & 3, code & 1
    return sign * (mantissa * 0.5 if exponent == 0 else (1 + mantissa * 0.5) * 2.0 ** (exponent - 1))


def decode(block, scale):
    """Sixteen bytes and their scale: 32 numbers, exact."""
    return [math.ldexp(element(code), scale - 127) for byte in block for code in (byte & 15, byte >> 4)]


def write(path, tensors, padded=True):
    """{name: (dtype, shape, bytes)} as a file of safetensors."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == SIZE[dtype] * math.prod(shape), name
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 if padded else (1 - len(text)) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def read(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    del header["__metadata__"]
    return {k: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for k, t in header.items()}


def read_folder(folder):
    files = [folder + "/" + name for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")]
    return {k: v for path in files for k, v in read(path).items()}


def numbers(dtype, data):
    """The bits of each number as fp32; 0 for -0, which an optimizer's step of zero may make 0."""
    wide = data if dtype == "F32" else b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return tuple(0 if bits == 1 << 31 else bits for bits in struct.unpack("<%dI" % (len(wide) // 4), wide))


def packed(draw, rows, columns):
    """Blocks and scales (experts, rows, columns / 32), and their values (experts, columns, rows) as fp32."""
    blocks, scales, values = bytearray(), bytearray(), []
    for expert in range(EXPERTS):
        matrix = []
        for row in range(rows):
            line = []
            for k in range(columns // 32):
                scale = draw.choice((0, 1, 252, 253, 254) if expert == UNUSED else range(119, 126))
                largest = {254: 4, 253: 6}.get(scale, 8)  # no infinity
                codes = [draw.randrange(largest) + 8 * draw.randrange(2) for _ in range(32)]
                if row == 0 and k == 0 and largest == 8:
                    codes = draw.sample(range(16), 16) * 2  # each of them
                block = bytes(codes[i] | codes[i + 1] << 4 for i in range(0, 32, 2))
                blocks += block
                scales.append(scale)
                line += decode(block, scale)
            matrix.append(line)
        values += [matrix[row][column] for column in range(columns) for row in range(rows)]
    shape = [EXPERTS, rows, columns // 32]
    wide = struct.pack("<%df" % len(values), *values)
    return ("U8", shape + [16], bytes(blocks)), ("U8", shape, bytes(scales)), ([EXPERTS, columns, rows], wide)


def tensors():
    """{folder: its tensors}"""
    draw = random.Random(17)
    folders = {"mx": {}, "bf16": {}, "fp32": {}}

    def plain(name, shape, scale, middle=0.0):
        data = struct.pack("<%df" % math.prod(shape), *(middle + scale * draw.gauss(0, 1) for _ in range(math.prod(shape))))
        for one in folders.values():
            one[name] = ("F32", shape, data)

    plain("model.embed_tokens.weight", [VOCAB, HIDDEN], 1.0)
    for i in range(LAYERS):
        n = "model.layers.%d." % i
        for norm in ("input_layernorm", "post_attention_layernorm"):
            plain(n + norm + ".weight", [HIDDEN], 0.1, 1.0)
        for name, rows, columns in (("q", HEADS * DIM, HIDDEN), ("k", KV * DIM, HIDDEN), ("v", KV * DIM, HIDDEN),
                                    ("o", HIDDEN, HEADS * DIM)):
            plain(n + "self_attn.%s_proj.weight" % name, [rows, columns], 0.15)
            plain(n + "self_attn.%s_proj.bias" % name, [rows], 0.1)
        plain(n + "self_attn.sinks", [HEADS], 0.5)
        plain(n + "mlp.router.weight", [EXPERTS, HIDDEN], 0.2)
        for one in folders.values():
            one[n + "mlp.router.bias"] = ("F32", [EXPERTS], struct.pack("<4f", 0.1, -0.1, 0.2, -1e4))
        for name, rows, columns in (("gate_up_proj", 2 * FFN, HIDDEN), ("down_proj", HIDDEN, FFN)):
            name = n + "mlp.experts." + name
            plain(name + "_bias", [EXPERTS, rows], 0.1)
            folders["mx"][name + "_blocks"], folders["mx"][name + "_scales"], (shape, data) = packed(draw, rows, columns)
            folders["fp32"][name] = ("F32", shape, data)
            assert all(data[k] == 0 == data[k + 1] for k in range(0, len(data), 4)), "bf16 is exact"
            folders["bf16"][name] = ("BF16", shape, b"".join(data[k + 2:k + 4] for k in range(0, len(data), 4)))
    plain("model.norm.weight", [HIDDEN], 0.1, 1.0)
    plain("lm_head.weight", [VOCAB, HIDDEN], 0.15)
    return folders


def make(folder):
    for name, all_of_it in tensors().items():
        to = folder + "/" + name
        os.makedirs(to)
        with open(to + "/config.json", "w") as f:
            json.dump(dict(CONFIG, quantization_config=QUANTIZED) if name == "mx" else CONFIG, f, indent=2)
        if name != "mx":
            write(to + "/model.safetensors", all_of_it)
            continue
        # A header that is no multiple of eight bytes, and scales in another file than their blocks.
        parts = {"a.safetensors": {k: v for k, v in all_of_it.items() if not k.endswith("_scales")},
                 "b.safetensors": {k: v for k, v in all_of_it.items() if k.endswith("_scales")}}
        for file, part in parts.items():
            write(to + "/" + file, part, padded=file == "b.safetensors")
        with open(to + "/model.safetensors.index.json", "w") as f:
            json.dump({"metadata": {}, "weight_map": {k: file for file, part in parts.items() for k in part}}, f)


def same(one, other):
    left, right = read_folder(one), read_folder(other)
    assert left.keys() == right.keys(), left.keys() ^ right.keys()
    for name, (dtype, shape, data) in left.items():
        assert shape == right[name][1], (name, shape, right[name][1])
        assert numbers(dtype, data) == numbers(right[name][0], right[name][2]), name


def spoil(source, folder, kind):
    shutil.copytree(source, folder)
    one = "model.layers.1.mlp.experts.down_proj"
    blocks = kind in ("shape", "no-blocks", "twice", "blocks-f32", "truncated")
    file, name = ("a", one + "_blocks") if blocks else ("b", one + "_scales")
    path = folder + "/%s.safetensors" % file
    now = read(path)
    dtype, shape, data = now[name]
    if kind == "nan":
        now[name] = (dtype, shape, data[:7] + b"\xff" + data[8:])
    elif kind == "shape":
        now[name] = (dtype, [EXPERTS, HIDDEN, FFN // 2], data)
    elif kind == "fewer":
        now[name] = (dtype, [EXPERTS, HIDDEN - 1, FFN // 32], data[:EXPERTS * (HIDDEN - 1) * (FFN // 32)])
    elif kind == "bf16":
        now[name] = ("BF16", shape, data * 2)
    elif kind == "blocks-f32":
        now[name] = ("F32", shape[:3] + [4], data)
    elif kind in ("no-blocks", "no-scales"):
        del now[name]
    elif kind == "twice":
        now[one] = ("BF16", [EXPERTS, FFN, HIDDEN], bytes(2 * EXPERTS * FFN * HIDDEN))
    elif kind == "u8":  # a tensor that has no blocks
        file, path = "a", folder + "/a.safetensors"
        now = read(path)
        now["model.norm.weight"] = ("U8", [HIDDEN], bytes(HIDDEN))
    write(path, now)
    if kind == "truncated":
        os.truncate(path, os.path.getsize(path) - 1)


if __name__ == "__main__":
    {"make": make, "same": same, "spoil": spoil}[sys.argv[1]](*sys.argv[2:])
