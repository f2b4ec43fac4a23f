"""All text that a user reads goes through ``tr``; catalogues are TOML files under ``resources``.

The English text is the key. ``install`` puts a translator on the application; Qt's own texts come
from Qt's catalogue. Without a translator ``tr`` returns the English text, without a window too.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from typing import Any

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QTranslator

from app import assets

CONTEXT = "Quire"
LANGUAGES = {"en": "English", "zh_CN": "简体中文"}
SYSTEM = "system"
_CHINESE_ENDS = ("。", "！", "？", "：", "；")
_ENDS = (*".!?:;…", *_CHINESE_ENDS)
_HAN = re.compile("[\u4e00-\u9fff]")


def tr(text: str, **values: object) -> str:
    """``text`` in the user's language, with ``{name}`` filled from ``values``.

    ``text`` must be a literal, so that a test can find every text that needs a translation.
    """
    translated = QCoreApplication.translate(CONTEXT, text)
    return translated.format(**values) if values else translated


def tr_n(one: str, many: str, n: int, **values: object) -> str:
    """``one`` if n is 1 else ``many``, translated; ``{n}`` is filled with grouped digits."""
    return tr(one if n == 1 else many, n=f"{n:,}", **values)


def sentences(*parts: str) -> str:
    """Sentences one after another, empty ones left out; Chinese ones have no space between them.

    One that ends in somebody else's words, with no stop after them, gets one.
    """
    text = ""
    for part in filter(None, parts):
        if text and not text.endswith(_ENDS):
            text += "。" if _HAN.search(part) else "."
        text += part if not text or text.endswith(_CHINESE_ENDS) else f" {part}"
    return text


def language_for(setting: str) -> str:
    """The catalogue for a setting: ``system`` follows the desktop, unknown ones are English."""
    if setting != SYSTEM:
        return setting if setting in LANGUAGES else "en"
    locale = QLocale.system()
    return "zh_CN" if locale.language() == QLocale.Language.Chinese else "en"


@lru_cache(maxsize=4)
def catalogue(language: str) -> dict[str, str]:
    """English text -> translation, from every TOML file of the language. Empty for English.

    Raises:
        ValueError: a text is given twice.
    """
    found: dict[str, str] = {}
    for path in sorted(assets.resource_path("translations", language).glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        twice = found.keys() & entries.keys()
        if twice:
            raise ValueError(f"{path.name} gives again: {sorted(twice)}")
        found.update(entries)
    return found


@lru_cache(maxsize=4)
def missing_in_qt(language: str) -> dict[tuple[str, str], str]:
    """(Qt's context, English text) -> translation of what Qt's own catalogue lacks."""
    folder = assets.resource_path("translations", language) / "qt"
    return {
        (context, text): translation
        for path in sorted(folder.glob("*.toml"))
        for context, entries in tomllib.loads(path.read_text(encoding="utf-8")).items()
        for text, translation in entries.items()
    }


class CatalogueTranslator(QTranslator):
    """Answers for our own context, and where Qt has no answer; Qt's other texts stay Qt's."""

    def __init__(self, entries: dict[str, str], in_qt: dict[tuple[str, str], str]) -> None:
        super().__init__()
        self._entries = entries
        self._in_qt = in_qt

    def isEmpty(self) -> bool:
        return not self._entries

    def translate(
        self,
        context: bytes | str,
        sourceText: bytes | str,
        disambiguation: bytes | str | None = None,
        n: int = -1,
    ) -> Any:
        # None, and not "", is Qt's "ask the next translator".
        if context == CONTEXT:
            return self._entries.get(str(sourceText))
        return self._in_qt.get((str(context), str(sourceText)))


class Language:
    """The translators of one language, on the application until ``remove``."""

    def __init__(self, setting: str = SYSTEM) -> None:
        self.code = ""
        self._translators: list[QTranslator] = []
        self._choose(setting)

    def _choose(self, setting: str) -> None:
        self.code = language_for(setting)
        self._translators = []
        if self.code == "en":
            return
        qt_texts = QTranslator()
        folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
        if qt_texts.load(f"qtbase_{self.code}", folder):
            self._translators.append(qt_texts)
        self._translators.append(
            CatalogueTranslator(catalogue(self.code), missing_in_qt(self.code))
        )

    def install(self) -> None:
        """Texts made from now on are in this language."""
        for translator in self._translators:
            QCoreApplication.installTranslator(translator)

    def switch_to(self, setting: str) -> None:
        """Another language, while it is installed."""
        self.remove()
        self._choose(setting)
        self.install()

    def remove(self) -> None:
        """Back to English."""
        for translator in self._translators:
            QCoreApplication.removeTranslator(translator)
