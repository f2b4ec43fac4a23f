"""Every text has a Chinese entry, and the translator works."""

from __future__ import annotations

import re

import pytest
from PySide6.QtCore import QLibraryInfo, QTranslator
from PySide6.QtWidgets import QApplication, QDialogButtonBox, QFileDialog, QLabel

from app.i18n import Language, catalogue, language_for, missing_in_qt, sentences, tr, tr_n
from tests.helpers.tr_texts import all_texts, texts_in

PLACEHOLDER = re.compile(r"\{(\w+)\}")
CHINESE = re.compile("[\u4e00-\u9fff]")


def test_every_text_is_translated() -> None:
    texts, _faults = all_texts()
    missing = {text: file for text, file in texts.items() if text not in catalogue("zh_CN")}
    assert missing == {}


def test_no_translation_is_left_over() -> None:
    texts, _faults = all_texts()
    assert [text for text in catalogue("zh_CN") if text not in texts] == []


def test_texts_are_literals() -> None:
    assert all_texts()[1] == []


def test_a_text_that_is_no_literal_is_found() -> None:
    assert texts_in("tr(name)\ntr('a')\ntr_n('b', 'c', 1)", "x.py") == (["a", "b", "c"], ["x.py:1"])


@pytest.mark.parametrize(("english", "chinese"), sorted(catalogue("zh_CN").items()))
def test_placeholders_survive_translation(english: str, chinese: str) -> None:
    assert sorted(PLACEHOLDER.findall(english)) == sorted(PLACEHOLDER.findall(chinese))
    assert chinese.strip()


def test_without_a_translator_the_text_is_english() -> None:
    assert tr("{rate} tok/s", rate="31") == "31 tok/s"
    assert tr_n("{n} token", "{n} tokens", 1) == "1 token"
    assert tr_n("{n} token", "{n} tokens", 1204) == "1,204 tokens"


def test_chinese_is_installed_and_removed(qapp: QApplication) -> None:
    language = Language("zh_CN")
    language.install()
    try:
        assert tr("New tab") == "新建标签页"
        box = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        assert box.buttons()[0].text() == "取消"
        assert tr("a text that nobody translated") == "a text that nobody translated"
    finally:
        language.remove()
    assert tr("New tab") == "New tab"


def test_qts_own_dialogs_are_chinese_throughout(qapp: QApplication, qtbot) -> None:
    language = Language("zh_CN")
    language.install()
    try:
        dialog = QFileDialog(options=QFileDialog.Option.DontUseNativeDialog)
        qtbot.addWidget(dialog)
        labels = [label.text() for label in dialog.findChildren(QLabel)]
        assert labels
        assert [text for text in labels if not CHINESE.search(text)] == []
    finally:
        language.remove()


def test_what_qt_translates_itself_is_not_ours() -> None:
    own = QTranslator()
    folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
    assert own.load("qtbase_zh_CN", folder)
    missing = missing_in_qt("zh_CN")
    assert missing
    assert [key for key in missing if own.translate(*key)] == []


def test_settings_choose_the_language() -> None:
    assert language_for("zh_CN") == "zh_CN"
    assert language_for("en") == "en"
    assert language_for("klingon") == "en"
    assert language_for("system") in ("en", "zh_CN")


def test_sentences_are_parted_as_their_language_does() -> None:
    assert sentences("One.", "", "Two.") == "One. Two."
    assert sentences("一。", "二：", "3") == "一。二：3"
    assert sentences() == ""
    assert sentences("It failed: disk full", "Try again.") == "It failed: disk full. Try again."
    assert sentences("失败：disk full", "请重试。") == "失败：disk full。请重试。"
    assert sentences("A name", "") == "A name"


def test_values_with_braces_are_not_filled_again() -> None:
    assert tr("Open {host} in the browser?", host="{x}") == "Open {x} in the browser?"
