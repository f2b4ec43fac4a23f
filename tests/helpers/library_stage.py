"""Folders that look like folders of models, and what an engine would say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.api.model_description import ModelDescription
from engine.api.model_files import GGUF_MAGIC, ModelIdentity

MB, GB = 10**6, 10**9


class Kept:
    """What is saved is kept as text."""

    def __init__(self) -> None:
        self.text = ""

    def save(self, text: str) -> None:
        self.text = text


def write_gguf(path: Path, size: int = 1000) -> str:
    """A file that has a name, a size and a magic, and nothing else of a model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(GGUF_MAGIC)
        file.truncate(size)
    return str(path)


def write_folder(path: Path, weights: str = "model.safetensors", size: int = 1000) -> str:
    """A folder in Hugging Face's format by its names."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}", encoding="utf-8")
    (path / weights).write_bytes(b"x" * size)
    return str(path)


def description(path: str, name: str = "", **changes: object) -> ModelDescription:
    """Of a model of 4 GB that fits into 16 GB."""
    made = ModelDescription(
        path=path,
        name=name or Path(path).stem,
        family="Qwen 3",
        architecture="Qwen3ForCausalLM",
        quantization="Q4_K",
        num_parameters=7_000_000_000,
        file_bytes=4 * GB,
        context_length=32768,
        license="apache-2.0",
        has_chat_template=True,
        device="cpu",
        dtype="bfloat16",
        weights_bytes=4 * GB,
        kv_bytes_per_1000_tokens=64 * MB,
        workspace_bytes=900 * MB,
        free_bytes=16 * GB,
        total_bytes=32 * GB,
        block_size=16,
        num_blocks=3840,
        fits=True,
        format="gguf",
        identity=ModelIdentity(4 * GB, 1),
        trained_context_length=32768,
    )
    return replace(made, **changes)  # type: ignore[arg-type]
