"""Chat templates that can be chosen by name, for a model that has none or whose own one fails."""

from __future__ import annotations

PLAIN, COMPLETION = "plain", "completion"
"""Text in which "User:" and "Assistant:" take turns; text without roles that is gone on with."""

CHAT_TEMPLATES = (
    "chatml",
    "llama3",
    "gemma",
    "mistral",
    "phi",
    "zephyr",
    "alpaca",
    PLAIN,
    COMPLETION,
)
"""In the order in which they are offered. Values of ``EngineConfig.chat_template``, besides "" for
the model's own."""
