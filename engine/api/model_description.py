"""What can be said of a model before it is loaded: its facts, and what it would take here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.api.model_files import ModelIdentity


class DescriptionNote(StrEnum):
    """Something about a model that a user should be told.

    REMOTE_CODE: its files name Python code to run; it is ignored, and never run. PICKLED: there are
    pickled weights beside the others, which are not read. CUT_CONTEXT: the settings allow a shorter
    context than the model was made for.
    """

    REMOTE_CODE = "remote_code"
    PICKLED = "pickled"
    CUT_CONTEXT = "cut_context"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model at ``path``, described from its headers alone. Sizes in bytes, lengths in tokens.

    Of the model: ``name``, ``license`` and other words from its files are plain text of one line,
    with control characters taken out. ``family`` is for people ("Gemma 3"), ``architecture``
    Hugging Face's class. ``quantization``: how most of the file's weights are kept (``Q4_K``,
    ``BF16`` …). ``format``: ``gguf`` or ``safetensors``. ``file_bytes``: of its weight files.
    ``identity``: of what was looked at. ``context_length``: that a load would give;
    ``trained_context_length``: that the model was made for.

    Of a load with the settings given: ``device`` and ``dtype``; ``weights_bytes`` in memory;
    ``kv_bytes_per_1000_tokens``; ``workspace_bytes`` that a full step takes at its peak;
    ``free_bytes`` that a load would find, with what the model that is loaded now gives back;
    ``total_bytes`` of that memory. ``num_blocks`` of ``block_size`` tokens would be the cache, 0 if
    nothing fits. ``fits``: it can be loaded as things are.
    """

    path: str
    name: str
    family: str
    architecture: str
    quantization: str
    num_parameters: int
    file_bytes: int
    context_length: int
    license: str
    has_chat_template: bool
    device: str
    dtype: str
    weights_bytes: int
    kv_bytes_per_1000_tokens: int
    workspace_bytes: int
    free_bytes: int
    total_bytes: int
    block_size: int
    num_blocks: int
    fits: bool
    format: str
    identity: ModelIdentity
    trained_context_length: int
    notes: tuple[DescriptionNote, ...] = ()

    @property
    def cache_tokens(self) -> int:
        """Tokens that the cache would hold."""
        return self.num_blocks * self.block_size

    def tabs_at_context(self, context_length: int) -> int:
        """How many conversations of that many tokens each the cache would hold, sharing nothing."""
        blocks = -(-context_length // self.block_size)
        return self.num_blocks // max(blocks, 1)
