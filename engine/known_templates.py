"""Chat templates of public formats, to be chosen by name.

Written here from the formats that the models' makers describe. A format is only offered if the
model's tokenizer has its control tokens as such: spelt out as text they mean nothing to a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engine.api.chat_templates import CHAT_TEMPLATES, COMPLETION, PLAIN
from engine.api.errors import ChatTemplateError
from engine.chat_template import ChatTemplate
from engine.fallback_template import FALLBACK_SOURCE, FALLBACK_STOP

# The system message where a format has no place of its own for one: before the first question.
_FOLD = """
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}{% set ns.system = message.content.strip() + '\\n\\n' %}
{%- else %}"""


@dataclass(frozen=True, slots=True)
class KnownTemplate:
    """One format.

    ``source``: a template that begins after the start token. ``needs``: control tokens that it is
    made of. ``ends``: those of them that end an answer. ``stop``: strings that do, where the model
    would speak for the user.
    """

    source: str
    needs: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()

    def missing(self, control_tokens: Collection[str]) -> list[str]:
        """Those of ``needs`` that are not among a tokenizer's control tokens."""
        return [token for token in self.needs if token not in control_tokens]

    def template(self, variables: Mapping[str, str], starts: bool) -> ChatTemplate:
        """``variables``: named tokens of the tokenizer; ``starts``: text begins with the start
        token, unless that is one of the format's own.
        """
        bos = variables.get("bos_token", "")
        starts = starts and bos not in ("", *self.needs)
        return ChatTemplate("{{ bos_token }}" * starts + self.source, variables)


_CHATML = """
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

_LLAMA3 = """
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{{- message.content.strip() + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

_GEMMA = (
    _FOLD
    + """
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\\n' }}
{{- (ns.system if message.role == 'user' else '') + message.content.strip() }}
{{- '<end_of_turn>\\n' }}
{%- if message.role == 'user' %}{% set ns.system = '' %}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
)

# Where [INST] is a control token, from Mistral's third version on, no space stands before its end.
_MISTRAL = (
    _FOLD
    + """
{%- if message.role == 'user' %}
{{- '[INST] ' + ns.system + message.content.strip() }}
{{- '[/INST]' if inst_is_token else ' [/INST]' }}
{%- set ns.system = '' %}
{%- else %}{{ ' ' + message.content.strip() + '</s>' }}
{%- endif %}
{%- endif %}
{%- endfor %}"""
)

# Phi-3 writes line breaks after these tokens, which the tokens take; Phi-4-mini writes none.
_PHI = """
{%- for message in messages %}
{{- '<|' + message.role + '|>' + message.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

_ZEPHYR = """
{%- for message in messages %}
{{- '<|' + message.role + '|>\\n' + message.content + '</s>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""

_ALPACA = """
{%- if messages[0].role != 'system' %}
{{- 'Below is an instruction that describes a task. '
    'Write a response that appropriately completes the request.\\n\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ message.content.strip() + '\\n\\n' }}
{%- elif message.role == 'user' %}
{{- '### Instruction:\\n' + message.content.strip() + '\\n\\n' }}
{%- else %}{{ '### Response:\\n' + message.content.strip() + '\\n\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}"""

# What is said is gone on with as it stands; a new paragraph divides an answer from what follows.
_COMPLETION = """
{%- for message in messages %}
{{- message.content if message.role == 'user' else message.content + '\\n\\n' }}
{%- endfor %}"""

KNOWN_TEMPLATES: Mapping[str, KnownTemplate] = MappingProxyType(
    {
        "chatml": KnownTemplate(_CHATML, ("<|im_start|>", "<|im_end|>"), ("<|im_end|>",)),
        "llama3": KnownTemplate(
            _LLAMA3, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), ("<|eot_id|>",)
        ),
        "gemma": KnownTemplate(_GEMMA, ("<start_of_turn>", "<end_of_turn>"), ("<end_of_turn>",)),
        "mistral": KnownTemplate(_MISTRAL, ("</s>",), ("</s>",), ("[INST]",)),
        "phi": KnownTemplate(_PHI, ("<|user|>", "<|assistant|>", "<|end|>"), ("<|end|>",)),
        "zephyr": KnownTemplate(_ZEPHYR, ("</s>",), ("</s>",), ("\n<|user|>", "\n<|system|>")),
        "alpaca": KnownTemplate(_ALPACA, stop=("\n### Instruction:", "\n### Input:")),
        PLAIN: KnownTemplate(FALLBACK_SOURCE, stop=FALLBACK_STOP),
        COMPLETION: KnownTemplate(_COMPLETION),
    }
)


def fitting(control_tokens: Collection[str]) -> tuple[str, ...]:
    """The names of those that a tokenizer with these control tokens can write, in order."""
    return tuple(
        name for name in CHAT_TEMPLATES if not KNOWN_TEMPLATES[name].missing(control_tokens)
    )


def known_template(name: str, control_tokens: Collection[str]) -> KnownTemplate:
    """The template ``name``.

    Raises:
        ChatTemplateError: the tokenizer lacks some of its control tokens.
    """
    known = KNOWN_TEMPLATES[name]
    missing = known.missing(control_tokens)
    if missing:
        raise ChatTemplateError(
            f"The chat template {name} is made of control tokens that this model does not have: "
            f"{', '.join(missing)}.",
            action=f"Choose one of these: {', '.join(fitting(control_tokens))}.",
            template=name,
            missing=len(missing),
        )
    return known
