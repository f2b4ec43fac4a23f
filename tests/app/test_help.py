"""The help page: both languages, the legend, and that nothing is loaded."""

from __future__ import annotations

import re
import socket

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QImage, QTextDocument

from app import assets
from app.cache_panel.legend import CODES, WRITTEN, legend_images
from app.theme import ThemeManager, load_theme
from app.widgets.help_window import HelpBrowser

NAMES = sorted([*CODES, WRITTEN])
LANGUAGES = ("en", "zh_CN")
IMAGE = QTextDocument.ResourceType.ImageResource.value


@pytest.fixture
def browser(qtbot) -> HelpBrowser:
    themes = ThemeManager("light")
    themes.apply()
    shown = HelpBrowser(themes)
    qtbot.addWidget(shown)
    return shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_look_of_a_block_is_explained_once(language: str) -> None:
    text = assets.resource_path("help", f"{language}.md").read_text("utf-8")
    assert sorted(re.findall(r"legend:(\w+)", text)) == NAMES


def test_both_pages_have_the_same_headings() -> None:
    pages = [assets.resource_path("help", f"{code}.md").read_text("utf-8") for code in LANGUAGES]
    counts = [len(re.findall(r"^#+ ", page, re.MULTILINE)) for page in pages]
    assert counts[0] == counts[1] > 8


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_the_words_and_the_samples(browser: HelpBrowser, language: str) -> None:
    browser.show_page(language)
    words = {"en": ("paging", "preemption"), "zh_CN": ("分页", "抢占")}[language]
    assert all(word in browser.toPlainText().lower() for word in words)
    html = browser.toHtml()
    assert html.count("legend:") == len(NAMES)
    for name in NAMES:
        image = browser.document().resource(IMAGE, QUrl(f"legend:{name}"))
        assert isinstance(image, QImage)
        assert not image.isNull()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_samples_differ(qapp, theme: str) -> None:
    images = legend_images(load_theme(theme), 22, 1.0)
    pixels = {bytes(image.constBits()) for image in images.values()}
    assert len(pixels) == len(NAMES)


def test_an_unknown_language_falls_back(browser: HelpBrowser) -> None:
    browser.show_page("tlh")
    assert "paging" in browser.toPlainText().lower()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/x.png", "file:///etc/hostname", "//host/share/x.png", "legend:none"]
)
def test_nothing_else_is_loaded(
    browser: HelpBrowser, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_a, **_k: pytest.fail("a connection"))
    assert browser.loadResource(IMAGE, QUrl(url)) is None
