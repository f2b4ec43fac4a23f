"""How to talk with a loaded model: its chat template, or what stands for one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.api.chat_templates import PLAIN
from engine.api.errors import ChatTemplateError, ModelFileError
from engine.api.events import TemplateNote
from engine.chat_encoder import ChatEncoder
from engine.chat_template import ChatTemplate, token_variables
from engine.known_templates import fitting, known_template
from engine.models.hf_config import read_json
from engine.template_check import TemplateReport, check_template
from engine.tokenizer import Tokenizer

_CONFIG = "tokenizer_config.json"
_QUESTION = {"role": "user", "content": "How many bridges are there?"}
_ANSWER = {"role": "assistant", "content": "There are seven bridges."}


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A model's format. ``stop``: strings at which an answer ends whatever else is asked for.

    ``tokenizer``: the model's, which knows the tokens that end an answer in this format. ``name``:
    of a template that was chosen, else "". ``has_own``: whether the model brings one, good or not.
    ``choices``: names of those that could be chosen.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    stop: tuple[str, ...]
    report: TemplateReport
    name: str = ""
    has_own: bool = True
    choices: tuple[str, ...] = ()

    @classmethod
    def from_folder(cls, folder: Path, tokenizer: Tokenizer, name: str = "") -> ChatFormat:
        """The format of the model in ``folder``, or the one of ``CHAT_TEMPLATES`` called ``name``.

        Raises:
            ChatTemplateError: the model's template has a syntax error, or the tokenizer lacks
                control tokens of the one that was chosen.
            ModelFileError: tokenizer_config.json or the model's template is damaged.
        """
        choices = fitting(tokenizer.special_tokens)
        config = read_json(folder / _CONFIG) or {}
        if name:
            return _chosen(tokenizer, config, name, _brings_template(folder), choices)
        template = ChatTemplate.from_folder(folder)
        if template is not None:
            tokenizer = tokenizer.with_ends(_turn_end(tokenizer, template))
            report = check_template(tokenizer, template)
            return cls(tokenizer, template, (), report, choices=choices)
        plain = _chosen(tokenizer, config, PLAIN, False, choices)
        report = replace(plain.report, note=TemplateNote.ABSENT)
        return replace(plain, tokenizer=tokenizer, report=report, name="")

    def make_encoder(self) -> ChatEncoder:
        """An encoder of its own, for one thread."""
        template = ChatTemplate(self.template.source, self.template.variables)
        return ChatEncoder(self.tokenizer, template, takes_system=self.report.takes_system)


def _brings_template(folder: Path) -> bool:
    try:
        return ChatTemplate.from_folder(folder) is not None
    except (ChatTemplateError, ModelFileError):
        return True


def _turn_end(tokenizer: Tokenizer, template: ChatTemplate) -> list[str]:
    """The control token with which the model's own template ends an answer, where the files name
    no token that stands there; none if that is not to be seen.

    Files are known to name the end of a text alone. Without the end of a turn the model would go on
    and speak for the user.
    """
    talk = [_QUESTION, _ANSWER]
    try:
        last = template.render(talk, add_generation_prompt=False)
        followed = template.render([*talk, _QUESTION], add_generation_prompt=True)
    except ChatTemplateError:
        return []
    runs = zip(_control_run(tokenizer, followed), _control_run(tokenizer, last), strict=False)
    # What only one of them has there belongs to the next question, or ends the whole text.
    run = [after for after, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], runs)]
    if not run or not tokenizer.eos_token_ids.isdisjoint(run):
        return []
    ends = [token for token, token_id in tokenizer.special_tokens.items() if token_id == run[0]]
    return [] if template.variables.get("bos_token") in ends else ends


def _control_run(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of the control tokens that follow the answer with nothing but white space between."""
    _, found, rest = text.partition(_ANSWER["content"])
    ids = []
    for piece, special_id in tokenizer.split_special(rest) if found else ():
        if special_id is not None:
            ids.append(special_id)
        elif piece.strip():
            break
    return ids


def _chosen(
    tokenizer: Tokenizer,
    config: Mapping[str, Any],
    name: str,
    has_own: bool,
    choices: tuple[str, ...],
) -> ChatFormat:
    known = known_template(name, tokenizer.special_tokens)
    variables = token_variables(config)
    if "[INST]" in tokenizer.special_tokens:
        variables["inst_is_token"] = "yes"
    # Where the file is silent, text of a vocabulary with a start token begins with it.
    template = known.template(variables, config.get("add_bos_token") is not False)
    tokenizer = tokenizer.with_ends(known.ends, f"{name}\0{template.source}")
    report = check_template(tokenizer, template)
    return ChatFormat(tokenizer, template, known.stop, report, name, has_own, choices)
