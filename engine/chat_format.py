"""How to talk with a loaded model: its chat template, or what stands for one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from engine.api.events import TemplateNote
from engine.chat_encoder import ChatEncoder
from engine.chat_template import ChatTemplate, token_variables
from engine.fallback_template import FALLBACK_STOP, fallback_template
from engine.models.hf_config import read_json
from engine.template_check import TemplateReport, check_template
from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A model's format. ``stop``: strings at which an answer ends whatever else is asked for."""

    tokenizer: Tokenizer
    template: ChatTemplate
    stop: tuple[str, ...]
    report: TemplateReport

    @classmethod
    def from_folder(cls, folder: Path, tokenizer: Tokenizer) -> ChatFormat:
        """The format of the model in ``folder``.

        Raises:
            ChatTemplateError: the template has a syntax error.
            ModelFileError: tokenizer_config.json is damaged.
        """
        template = ChatTemplate.from_folder(folder)
        if template is not None:
            return cls(tokenizer, template, (), check_template(tokenizer, template))
        config = read_json(folder / "tokenizer_config.json") or {}
        template = fallback_template(token_variables(config))
        report = replace(check_template(tokenizer, template), note=TemplateNote.ABSENT)
        return cls(tokenizer, template, FALLBACK_STOP, report)

    def make_encoder(self) -> ChatEncoder:
        """An encoder of its own, for one thread."""
        template = ChatTemplate(self.template.source, self.template.variables)
        return ChatEncoder(self.tokenizer, template, takes_system=self.report.takes_system)
