"""Writes small GGUF files of the Llama family, whole or wrong in one way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, LAYERS = 256, 512, 4, 2, 2

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Where a block keeps its half-precision scales; random bytes there could be infinite.
_SCALE_OFFSETS = {
    GGMLQuantizationType.Q2_K: (-4, -2),
    GGMLQuantizationType.Q3_K: (-2,),
    GGMLQuantizationType.Q4_K: (0, 2),
    GGMLQuantizationType.Q5_K: (0, 2),
    GGMLQuantizationType.Q6_K: (-2,),
}


@dataclass
class TinyGguf:
    """What to write. ``extra`` metadata replaces or, with None, removes an entry.

    ``part_tensors``: tensors in one file at most, of which there then are several; 0: in one.
    ``bare_first``: the first of them has none.
    """

    weight_type: GGMLQuantizationType = GGMLQuantizationType.F32
    architecture: str = "llama"
    tied: bool = True
    seed: int = 0
    left_out: str = ""
    tokenizer_model: str = "gpt2"
    pre_tokenizer: str = "smollm"
    merges: tuple[str, ...] = ("h e", "l l", "he ll", "hell o", "Ġ w")
    extra: Mapping[str, Any] = field(default_factory=dict)
    part_tensors: int = 0
    bare_first: bool = False

    def tokens(self) -> list[str]:
        """Control tokens, the 256 bytes, then what the merges make."""
        table = _byte_characters()
        return [*CONTROL_TOKENS, *table, *(merge.replace(" ", "") for merge in self.merges)]

    def write(self, path: Path) -> Path:
        """Writes it to ``path``, in several parts beside it; returns ``path``, or the first."""
        writer = gguf.GGUFWriter(
            path,
            self.architecture,
            split_max_tensors=self.part_tensors,
            small_first_shard=self.bare_first,
        )
        self._add_metadata(writer)
        random = np.random.default_rng(self.seed)
        for name, shape in self._shapes().items():
            if name == self.left_out:
                continue
            kind = GGMLQuantizationType.F32 if len(shape) == 1 else self.weight_type
            writer.add_tensor(name, quantised_rows(random, shape, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path if path.exists() else min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))

    def _add_metadata(self, writer: gguf.GGUFWriter) -> None:
        name = self.architecture
        values: dict[str, Any] = {
            "general.name": "Tiny",
            "general.license": "apache-2.0",
            f"{name}.block_count": LAYERS,
            f"{name}.context_length": 128,
            f"{name}.embedding_length": HIDDEN,
            f"{name}.feed_forward_length": FEED_FORWARD,
            f"{name}.attention.head_count": HEADS,
            f"{name}.attention.head_count_kv": KV_HEADS,
            f"{name}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{name}.rope.freq_base": 10000.0,
            f"{name}.rope.dimension_count": HIDDEN // HEADS,
            f"{name}.vocab_size": len(self.tokens()),
            **self.tokenizer_metadata(),
        }
        for key, value in {**values, **self.extra}.items():
            add_entry(writer, key, value)

    def tokenizer_metadata(self) -> dict[str, Any]:
        tokens = self.tokens()
        return {
            "tokenizer.ggml.model": self.tokenizer_model,
            "tokenizer.ggml.pre": self.pre_tokenizer,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
            "tokenizer.ggml.merges": list(self.merges),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.chat_template": CHATML,
        }

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Rows first."""
        vocabulary = len(self.tokens())
        kv_rows = HIDDEN // HEADS * KV_HEADS
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, HIDDEN)}
        for layer in range(LAYERS):
            prefix = f"blk.{layer}."
            shapes |= {
                f"{prefix}attn_norm.weight": (HIDDEN,),
                f"{prefix}attn_q.weight": (HIDDEN, HIDDEN),
                f"{prefix}attn_k.weight": (kv_rows, HIDDEN),
                f"{prefix}attn_v.weight": (kv_rows, HIDDEN),
                f"{prefix}attn_output.weight": (HIDDEN, HIDDEN),
                f"{prefix}ffn_norm.weight": (HIDDEN,),
                f"{prefix}ffn_gate.weight": (FEED_FORWARD, HIDDEN),
                f"{prefix}ffn_up.weight": (FEED_FORWARD, HIDDEN),
                f"{prefix}ffn_down.weight": (HIDDEN, FEED_FORWARD),
            }
        shapes["output_norm.weight"] = (HIDDEN,)
        if not self.tied:
            shapes["output.weight"] = (vocabulary, HIDDEN)
        return shapes


def add_entry(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Adds a metadata entry in the type of its value; None adds nothing."""
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_uint32(key, value)


def quantised_rows(
    random: np.random.Generator, shape: tuple[int, ...], kind: GGMLQuantizationType
) -> np.ndarray[Any, Any]:
    """Random values as a file stores them: rows of bytes, or of numbers if ``kind`` is one."""
    if kind not in _SCALE_OFFSETS:
        return gguf.quantize(random.standard_normal(shape, np.float32), kind)
    # The package can expand these kinds and not make them: any bytes will do, but for the scales.
    block, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0], shape[1] // block, block_bytes), np.uint8)
    for offset in _SCALE_OFFSETS[kind]:
        scales = random.uniform(0.01, 1.0, blocks.shape[:2]).astype("<f2")
        start = offset % block_bytes
        blocks[..., start : start + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(shape[0], -1)


def _byte_characters() -> list[str]:
    """The 256 characters of a byte-level vocabulary, as GPT-2 names them."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    shifted = (chr(256 + index) for index in range(256))
    return [chr(byte) if byte in plain else next(shifted) for byte in range(256)]
