"""Reader and writer of the safetensors format from its published description, for tests only: 8 bytes of header length,
a JSON header, the tensors. Independent of trainer/safetensors.c and of any package."""
import json
import struct

import numpy

NUMPY = {"F32": numpy.dtype("<f4"), "F16": numpy.dtype("<f2"), "BF16": numpy.dtype("<u2")}


def read(path):
    """{name: float32 array} of a file."""
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    tensors = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        raw = numpy.frombuffer(data[begin:end], dtype=NUMPY[t["dtype"]])
        if t["dtype"] == "BF16":
            raw = (raw.astype(numpy.uint32) << 16).view(numpy.float32)
        tensors[name] = raw.astype(numpy.float32).reshape(t["shape"])
    return tensors


def read_folder(folder):
    """All weights of a Hugging Face folder, in one file or in several with an index."""
    try:
        with open(folder + "/model.safetensors.index.json") as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    except FileNotFoundError:
        files = ["model.safetensors"]
    tensors = {}
    for name in files:
        tensors.update(read(folder + "/" + name))
    return tensors


def write(path, tensors):
    """Write {name: array} as F32."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    blobs = []
    for name, value in tensors.items():
        blob = numpy.ascontiguousarray(value, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(numpy.shape(value)), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for blob in blobs:
            f.write(blob)
