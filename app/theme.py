"""Design tokens: one TOML file a theme becomes a palette and one style sheet.

No widget sets colours of its own. What the style sheet cannot reach (painted cells, documents,
icons) asks the current ``Theme`` and repaints on ``ThemeManager.changed``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import Template
from typing import Protocol

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QPalette
from PySide6.QtWidgets import QApplication

from app import appearance as fonts
from app import assets
from app.appearance import BODY_POINT_SIZE as BODY_POINT_SIZE
from app.appearance import CODE_POINT_SIZE as CODE_POINT_SIZE
from app.appearance import COMFORTABLE as COMFORTABLE
from app.appearance import COMPACT as COMPACT
from app.appearance import LINE_HEIGHT as LINE_HEIGHT
from app.appearance import POINT_SIZE as POINT_SIZE
from app.appearance import TITLE_POINT_SIZE as TITLE_POINT_SIZE
from app.appearance import USUAL
from app.appearance import Appearance as Appearance
from app.appearance import body_font as body_font
from app.appearance import code_font as code_font
from app.appearance import interface_font as interface_font
from app.appearance import number_font as number_font
from app.appearance import row_height as row_height

LIGHT, DARK, SYSTEM = "light", "dark", "system"
MODES = (SYSTEM, LIGHT, DARK)

# Lengths of the style sheet in pixels, by density.
_LENGTHS: Mapping[str, Mapping[str, str]] = {
    COMFORTABLE: {
        "button_y": "5px",
        "button_y_focus": "4px",
        "field_y": "4px",
        "menu_y": "6px",
        "tab_y": "7px",
        "example_y": "9px",
        "tool": "4px",
    },
    COMPACT: {
        "button_y": "2px",
        "button_y_focus": "1px",
        "field_y": "2px",
        "menu_y": "3px",
        "tab_y": "3px",
        "example_y": "5px",
        "tool": "2px",
    },
}


@dataclass(frozen=True)
class Theme:
    """Tokens of one theme. Colours are ``#RRGGBB``; see ``resources/themes``."""

    name: str
    dark: bool
    colors: Mapping[str, str]
    syntax: Mapping[str, str]
    hues: tuple[str, ...]

    def color(self, token: str) -> QColor:
        """Colour of a token such as ``background``, ``text``, ``accent`` or ``shared``.

        Raises:
            KeyError: there is no such token.
        """
        return QColor(self.colors[token])

    def hue(self, number: int) -> QColor:
        """Colour of conversation ``number`` (from 1); hues repeat, the number tells them apart."""
        return QColor(self.hues[(number - 1) % len(self.hues)])

    @property
    def shared(self) -> QColor:
        """Neutral colour of blocks that several conversations use; drawn with a hatch."""
        return self.color("shared")

    def on(self, color: QColor) -> QColor:
        """Black or white, whichever reads better on ``color``: at least 4.5:1 on any colour."""
        black, white = QColor("#000000"), QColor("#FFFFFF")
        return black if contrast(black, color) >= contrast(white, color) else white

    def icon(self, name: str, token: str = "text") -> QIcon:
        """Icon ``name`` in the colour of ``token``."""
        return assets.icon(name, self.colors[token], self.colors["strong_line"])

    def palette(self) -> QPalette:
        """The palette for everything that the style sheet does not name."""
        return _palette(self)

    def style_sheet(self, appearance: Appearance = USUAL) -> str:
        """The one style sheet of the application."""
        template = Template(_read_theme_file("style.qss"))
        title = f"{appearance.scaled(TITLE_POINT_SIZE):g}pt"
        lengths = _LENGTHS[appearance.density]
        images = {
            f"{sign}_image": assets.resource_path("themes", f"{sign}_{self.name}.svg").as_posix()
            for sign in ("check", "arrow")
        }
        return template.substitute(self.colors, **lengths, **images, title_size=title)


def contrast(first: QColor, second: QColor) -> float:
    """Contrast ratio of two opaque colours, 1 to 21, as WCAG 2 defines it."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: QColor) -> float:
    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)

    red, green, blue = (linear(c) for c in (color.redF(), color.greenF(), color.blueF()))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def blend(under: QColor, over: QColor, amount: float) -> QColor:
    """``over`` laid on ``under`` with opacity ``amount`` (0 to 1), as an opaque colour."""
    rest = 1.0 - amount
    return QColor.fromRgbF(
        under.redF() * rest + over.redF() * amount,
        under.greenF() * rest + over.greenF() * amount,
        under.blueF() * rest + over.blueF() * amount,
    )


def _read_theme_file(name: str) -> str:
    return assets.resource_path("themes", name).read_text(encoding="utf-8")


@lru_cache(maxsize=8)
def load_theme(name: str) -> Theme:
    """Reads ``resources/themes/<name>.toml``.

    Raises:
        FileNotFoundError: there is no such theme.
        KeyError: the file lacks a section.
    """
    data = tomllib.loads(_read_theme_file(f"{name}.toml"))
    hues = tuple(data["hues"]["conversations"])
    return Theme(data["name"], data["dark"], data["colors"], data["syntax"], hues)


def _palette(theme: Theme) -> QPalette:
    role = QPalette.ColorRole
    tokens = {
        role.Window: "background",
        role.WindowText: "text",
        role.Base: "surface",
        role.AlternateBase: "raised",
        role.Text: "text",
        role.Button: "raised",
        role.ButtonText: "text",
        role.BrightText: "error",
        role.ToolTipBase: "raised",
        role.ToolTipText: "text",
        role.PlaceholderText: "muted",
        role.Highlight: "selection",
        role.HighlightedText: "text",
        role.Link: "accent",
        role.LinkVisited: "accent",
        role.Light: "surface",
        role.Midlight: "raised",
        role.Mid: "line",
        role.Dark: "strong_line",
        role.Shadow: "strong_line",
        role.Accent: "accent",
    }
    palette = QPalette()
    for palette_role, token in tokens.items():
        palette.setColor(palette_role, theme.color(token))
    for palette_role in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, palette_role, theme.color("muted"))
    return palette


class SystemTheme(Protocol):
    """Tells whether the desktop is dark; tests put a fake here."""

    def is_dark(self) -> bool:
        """True if the desktop asks for dark. False if it asks for light or does not say."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """``listener`` is called, in the GUI thread, when the answer may have changed."""


class QtSystemTheme:
    """The desktop's colour scheme as Qt reports it; Unknown counts as light."""

    def is_dark(self) -> bool:
        return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark

    def on_change(self, listener: Callable[[], None]) -> None:
        QGuiApplication.styleHints().colorSchemeChanged.connect(lambda _scheme: listener())


class ThemeManager(QObject):
    """Holds the current theme and applies it to the application.

    ``changed`` carries the new ``Theme``. ``mode`` is ``system``, ``light`` or ``dark``.
    ``appearance_changed``: other fonts or another density; widgets that hold a font are made anew.
    ``zoom_changed``: transcripts are shown larger or smaller.
    """

    changed = Signal(object)
    appearance_changed = Signal()
    zoom_changed = Signal()

    def __init__(
        self,
        mode: str = SYSTEM,
        system: SystemTheme | None = None,
        parent: QObject | None = None,
        appearance: Appearance = USUAL,
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._zoom = 1.0
        self._system: SystemTheme = system if system is not None else QtSystemTheme()
        self._mode = _checked_mode(mode)
        self._theme = self._resolve()
        self._system.on_change(self._on_system_changed)

    @property
    def theme(self) -> Theme:
        return self._theme

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def appearance(self) -> Appearance:
        return self._appearance

    def set_appearance(self, appearance: Appearance) -> None:
        """Other fonts or another density, at run time."""
        if appearance != self._appearance:
            self._appearance = appearance
            self.apply()
            self.appearance_changed.emit()

    @property
    def zoom(self) -> float:
        """How much larger than usual transcripts are shown."""
        return self._zoom

    def set_zoom(self, zoom: float) -> None:
        """Larger or smaller transcripts, at run time."""
        if zoom != self._zoom:
            self._zoom = zoom
            self.zoom_changed.emit()

    def set_mode(self, mode: str) -> None:
        """Switches at run time. Raises ValueError for a mode that does not exist."""
        self._mode = _checked_mode(mode)
        self._update()

    def apply(self) -> None:
        """Puts style, palette, fonts and style sheet on the running application."""
        app = QApplication.instance()
        if not isinstance(app, QApplication):
            raise RuntimeError("a theme needs a running QApplication")
        if app.style().objectName() != "fusion":
            app.setStyle("Fusion")
        app.setPalette(self._theme.palette())
        fonts.apply(self._appearance)
        app.setStyleSheet(self._theme.style_sheet(self._appearance))

    def _on_system_changed(self) -> None:
        if self._mode == SYSTEM:
            self._update()

    def _update(self) -> None:
        theme = self._resolve()
        if theme is not self._theme:
            self._theme = theme
            self.apply()
            self.changed.emit(theme)

    def _resolve(self) -> Theme:
        if self._mode == SYSTEM:
            return load_theme(DARK if self._system.is_dark() else LIGHT)
        return load_theme(self._mode)


def _checked_mode(mode: str) -> str:
    if mode not in MODES:
        raise ValueError(f"theme mode {mode!r}: one of {', '.join(MODES)}")
    return mode
