"""What the model's chat template means for the user, in words."""

from __future__ import annotations

from app.i18n import tr
from engine.api.events import ModelInfo, TemplateNote


def template_words(info: ModelInfo) -> str:
    """What to know before talking with the model; empty if there is nothing."""
    parts = [_note_words(info)]
    if not info.takes_system_message:
        parts.append(
            tr(
                "The model's chat template takes no system prompt: it is put before the first "
                "question."
            )
        )
    return "\n".join(part for part in parts if part)


def _note_words(info: ModelInfo) -> str:
    if info.template_note is TemplateNote.ABSENT:
        return tr(
            "The model has no chat template: it is given plain text in which “User:” and "
            "“Assistant:” take turns."
        )
    if info.template_note is TemplateNote.REFUSES:
        return tr("The model's chat template fails: {error}", error=info.template_error)
    reason = {
        TemplateNote.REASONING: tr("the chat template drops the reasoning of earlier answers"),
        TemplateNote.SYSTEM: tr("the chat template moves the system prompt to the newest question"),
        TemplateNote.ANSWERS: tr("the chat template rewrites earlier answers"),
    }.get(info.template_note)
    if reason is None:
        return ""
    return tr(
        "Each turn recomputes about {n} tokens: {reason}.",
        n=f"{info.template_recomputed_tokens:,}",
        reason=reason,
    )
