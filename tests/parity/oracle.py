# SPDX-License-Identifier: MIT
# tests/parity/oracle.py - what the parity checks share: our random numbers in NumPy, the recipe of the ten golden
# steps (the same as in tests/parity/recipe.cpp, written independently), and safetensors with the standard library.
import json
import struct

import numpy as np

SEED = 20240607
BATCH = 8
STEPS = 10
# A small rate makes the comparison sharp: at 0.001 two of PyTorch's own convolution algorithms already leave
# conv1.weight 1.7e-3 of its norm apart after ten steps.
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.0005, 0.9, 5e-4
INPUT_STREAM, LABEL_STREAM = 1000, 2000  # Plus the step; streams below belong to the parameters.
MASK = np.uint64(0xFFFFFFFF)


def philox(seed, stream, index):
    """Philox-4x32-10 of core/rng.h; `index` is an array of uint64. Returns uint32 words [len, 4]."""
    c = [(index & MASK), (index >> np.uint64(32)), np.full_like(index, stream & 0xFFFFFFFF),
         np.full_like(index, stream >> 32)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & MASK,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1)


def words(seed, stream, count):
    return philox(seed, stream, np.arange((count + 3) // 4, dtype=np.uint64))


def normal(seed, stream, count):
    w = words(seed, stream, count).astype(np.float64)
    radius = np.sqrt(-2.0 * np.log((w[:, 0::2] + 1.0) * 2.0**-32))
    angle = 6.283185307179586 * (w[:, 1::2] * 2.0**-32)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    return pairs.reshape(-1)[:count].astype(np.float32)


def uniform(seed, stream, count):
    return ((words(seed, stream, count) >> np.uint64(8)).astype(np.float64) * 2.0**-24).reshape(-1)[:count]


def initial_value(index, name, shape):
    """Parameter number `index`: He-normal (fan out) kernels, a small matrix at the end so that the loss starts
    near log 10, and norms near 1 and 0, with noise so that no value is special."""
    z = normal(SEED, index, int(np.prod(shape))).astype(np.float64)
    if len(shape) == 4:
        value = np.sqrt(2.0 / (shape[0] * shape[2] * shape[3])) * z
    elif len(shape) == 2:
        value = 0.02 * z
    else:
        value = (1.0 if name.endswith("weight") else 0.0) + 0.1 * z
    return value.astype(np.float32).reshape(shape)


def batch(step):
    images = normal(SEED, INPUT_STREAM + step, BATCH * 3 * 32 * 32).reshape(BATCH, 3, 32, 32)
    labels = np.floor(10 * uniform(SEED, LABEL_STREAM + step, BATCH)).astype(np.int64)
    return images, labels


# ---- PyTorch ----------------------------------------------------------------------------------------------------


def torch_resnet18():
    """torchvision's ResNet-18 with the CIFAR stem and the golden initial values."""
    import torch
    import torchvision
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = torch.nn.Identity()
    with torch.no_grad():
        for i, (name, parameter) in enumerate(model.named_parameters()):
            parameter.copy_(torch.from_numpy(initial_value(i, name, tuple(parameter.shape))))
    return model


def torch_train(model, dtype=None):
    """The golden steps; returns the losses."""
    import torch
    dtype = dtype or torch.float32
    model.to(dtype).train()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for step in range(STEPS):
        images, labels = batch(step)
        logits = model(torch.from_numpy(images).to(dtype))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- safetensors ------------------------------------------------------------------------------------------------

DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8}


def save_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        code = next(code for code, dtype in DTYPES.items() if dtype == array.dtype)
        raw = np.array(array, order="C", copy=False).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load_safetensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[info["dtype"]]).reshape(info["shape"])
    return tensors
