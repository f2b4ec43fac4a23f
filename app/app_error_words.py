"""Words for errors of the application, by their codes: the cause with its numbers, what to do."""

from __future__ import annotations

from app.engine_error_words import Described, Numbers, Words
from app.i18n import tr


def _answer_running(_n: Numbers) -> Words:
    return (
        tr("This conversation is still being answered."),
        tr("Wait for the answer, or stop it."),
    )


def _model_went_back(n: Numbers) -> Words:
    words = tr(
        "{name} was not loaded. The model that was there before is loaded again.", name=n["name"]
    )
    return words, ""


def _data_directory(_n: Numbers) -> Words:
    return (
        tr("The data directory cannot be used."),
        tr("Check its permissions and the free disk space, or start with another --data-dir."),
    )


def _data_directory_in_use(n: Numbers) -> Words:
    return (
        tr("Another Quire window has the data directory {path} open.", path=n["path"]),
        tr("Use the window that is open, or start with another --data-dir."),
    )


def _store_too_new(n: Numbers) -> Words:
    return (
        tr(
            "The conversations are of a newer Quire: schema {found}, this one knows {known}.",
            found=n["found"],
            known=n["known"],
        ),
        tr("Update Quire, or start with another --data-dir. Nothing was changed."),
    )


def _store_damaged(_n: Numbers) -> Words:
    return (
        tr("The conversation database was damaged."),
        tr("The damaged file was kept; a new one was begun."),
    )


def _store_damage_found(_n: Numbers) -> Words:
    return (
        tr("A check found the conversation database damaged."),
        tr("Export what you need. The next start puts the file aside and begins a new one."),
    )


def _store_write(_n: Numbers) -> Words:
    return (
        tr("A conversation could not be saved."),
        tr("Free some disk space. Saving is tried again; keep the window open until then."),
    )


def _store_recovered(_n: Numbers) -> Words:
    return tr("Saving works again."), ""


def _conversation_not_found(_n: Numbers) -> Words:
    return tr("This conversation is no longer stored."), ""


def _settings_unreadable(_n: Numbers) -> Words:
    return (
        tr("The settings file could not be read."),
        tr("The defaults are used; the old file was kept beside it."),
    )


def _settings_write(_n: Numbers) -> Words:
    return (
        tr("The settings could not be saved."),
        tr("Check the permissions of the data directory and the free disk space."),
    )


def _invalid_setting(_n: Numbers) -> Words:
    return (
        tr("A setting was not used."),
        tr("Correct it in the settings file, or change it in the window."),
    )


def _import_file(_n: Numbers) -> Words:
    return (
        tr("The conversations could not be imported."),
        tr(
            "Nothing was changed. Choose a file that Quire exported, or the conversations.json of "
            "a ChatGPT export."
        ),
    )


def _export_file(_n: Numbers) -> Words:
    return (
        tr("The conversation could not be exported."),
        tr("Check the folder's permissions and the free disk space, or choose another folder."),
    )


def _prompt_file(_n: Numbers) -> Words:
    return (
        tr("The system prompts could not be read or written."),
        tr("Nothing was changed. Choose a text file, or prompts that Quire exported."),
    )


def _attachment_too_large(n: Numbers) -> Words:
    return (
        tr(
            "{name} has {size} KB; {limit} KB are the limit.",
            name=n["name"],
            size=n["size_kb"],
            limit=n["limit_kb"],
        ),
        tr("Attach a part of it, or paste what matters."),
    )


def _attachments_too_many(n: Numbers) -> Words:
    return (
        tr("{limit} of {count} files are attached.", limit=n["limit"], count=n["count"]),
        tr("Attach the others afterwards."),
    )


def _attachment_binary(n: Numbers) -> Words:
    return (
        tr("{name} is not a text file.", name=n["name"]),
        tr("Attach text files; of other documents paste the text."),
    )


def _attachment_unreadable(n: Numbers) -> Words:
    return (
        tr("{name} cannot be read: {reason}", name=n["name"], reason=n["reason"]),
        tr("Check that the file is there and may be read."),
    )


APP_ERRORS: Described = {
    "answer_running": _answer_running,
    "model_went_back": _model_went_back,
    "data_directory": _data_directory,
    "data_directory_in_use": _data_directory_in_use,
    "store_too_new": _store_too_new,
    "store_damaged": _store_damaged,
    "store_damage_found": _store_damage_found,
    "store_write": _store_write,
    "store_recovered": _store_recovered,
    "conversation_not_found": _conversation_not_found,
    "settings_unreadable": _settings_unreadable,
    "settings_write": _settings_write,
    "invalid_setting": _invalid_setting,
    "import_file": _import_file,
    "export_file": _export_file,
    "prompt_file": _prompt_file,
    "attachment_too_large": _attachment_too_large,
    "attachments_too_many": _attachments_too_many,
    "attachment_binary": _attachment_binary,
    "attachment_unreadable": _attachment_unreadable,
}
