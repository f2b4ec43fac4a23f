"""How a model without a chat template is talked to: as plain text that names who speaks.

Such a model was trained to go on with text, not to answer. The names make it take turns, and what
it writes after its own turn is cut off by ``FALLBACK_STOP``.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.chat_template import ChatTemplate

FALLBACK_SOURCE = """
{%- for message in messages %}
{%- if message.role == 'system' %}{{ message.content.strip() + '\\n\\n' }}
{%- elif message.role == 'user' %}{{ 'User: ' + message.content.strip() + '\\n\\n' }}
{%- else %}{{ 'Assistant: ' + message.content.strip() + '\\n\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""
"""Without the start token."""

FALLBACK_STOP = ("\nUser:", "\n\nUser:")
"""Where the model begins to speak for the user."""


def fallback_template(variables: Mapping[str, str]) -> ChatTemplate:
    """A template for a model that has none. ``variables``: its bos_token, if it has one."""
    start = "{{ bos_token }}" if variables.get("bos_token") else ""
    return ChatTemplate(start + FALLBACK_SOURCE, variables)
