"""One line under the tabs while the cache panel is closed: pool, sharing, speed."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from app import theme
from app.bridge import Bridge
from app.cache_panel import units
from app.i18n import tr, tr_n
from app.session import Session
from app.session_state import ModelStatus
from app.theme import Theme, ThemeManager, blend
from engine.api.events import EngineStats, EngineStatusChanged

_HEIGHT = 28
_BAR = QSize(96, 8)
_LEFT = 12
_GAP = 10
_CACHED_AMOUNT = 0.35


class PanelStrip(QPushButton):
    """A button that opens the panel, with the engine's counters as its text.

    It subscribes to nothing: the counters come twice a second while something runs, and hidden it
    only keeps the last ones.
    """

    def __init__(
        self, session: Session, bridge: Bridge, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._stats: EngineStats | None = None
        self._status: EngineStatusChanged | None = bridge.latest_status
        self._theme = themes.theme
        themes.changed.connect(self._on_theme_changed)
        self.setProperty("kind", "strip")
        self.setFont(theme.number_font())
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setToolTip(tr("Open the cache panel"))
        self.setAccessibleName(tr("Open the cache panel"))
        # Enter opens it, as Space does.
        self.setAutoDefault(True)
        bridge.stats_changed.connect(self._on_stats_changed)
        bridge.status_changed.connect(self._on_status_changed)
        session.model_state_changed.connect(self._on_model_state_changed)
        self.hide()
        if bridge.latest_stats is not None:
            self._on_stats_changed(bridge.latest_stats)

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), _HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(160, _HEIGHT)

    def _on_theme_changed(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def _on_stats_changed(self, stats: EngineStats) -> None:
        if self._session.model_state.status is not ModelStatus.READY:
            # Of the model that is to go: the engine tells of it until it has gone.
            return
        self._stats = stats
        if self.isVisible():
            self._show()

    def _on_status_changed(self, status: EngineStatusChanged) -> None:
        self._status = status
        if self.isVisible():
            self._show()

    def _on_model_state_changed(self) -> None:
        if self._session.model_state.status is not ModelStatus.READY:
            self._stats = None
        if self.isVisible():
            self._show()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show()

    def _show(self) -> None:
        text = strip_words(self._stats, self._has_model(), self._status)
        if text != self.text():
            self.setText(text)
            self.setAccessibleName(tr("Cache panel, closed. {facts}", facts=text))
        self.update()

    def _has_model(self) -> bool:
        return self._session.model_state.status is ModelStatus.READY

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        theme, stats = self._theme, self._stats
        painter = QPainter(self)
        top = (self.height() - _BAR.height()) / 2
        bar = QRectF(_LEFT, top, _BAR.width(), _BAR.height())
        painter.fillRect(bar, theme.color("raised"))
        if stats is not None:
            total = max(1, stats.used_blocks + stats.cached_blocks + stats.free_blocks)
            used = bar.width() * stats.used_blocks / total
            cached = bar.width() * stats.cached_blocks / total
            accent = theme.color("accent")
            painter.fillRect(QRectF(bar.left(), top, used, bar.height()), accent)
            pale = blend(theme.color("background"), accent, _CACHED_AMOUNT)
            painter.fillRect(QRectF(bar.left() + used, top, cached, bar.height()), pale)
        painter.setPen(theme.color("strong_line"))
        painter.drawRect(bar.adjusted(0.5, 0.5, -0.5, -0.5))
        painter.end()


def strip_words(
    stats: EngineStats | None, has_model: bool, status: EngineStatusChanged | None = None
) -> str:
    """Pool use, shared blocks and speed, as far as they are known.

    Slow motion that was left on is said too: the panel that shows it is closed.
    """
    if not has_model:
        return tr("No pool yet: no model is loaded.")
    return "  ·  ".join([*_pool_words(stats), *_pace_words(stats, status)])


def _pool_words(stats: EngineStats | None) -> list[str]:
    if stats is None:
        return [tr("The pool is empty.")]
    total = max(1, stats.used_blocks + stats.cached_blocks + stats.free_blocks)
    return [
        tr(
            "Pool {used} used, {cached} cached",
            used=tr("{percent} %", percent=f"{100 * stats.used_blocks / total:.0f}"),
            cached=tr("{percent} %", percent=f"{100 * stats.cached_blocks / total:.0f}"),
        ),
        tr_n("{n} shared block", "{n} shared blocks", stats.shared_blocks),
    ]


def _pace_words(stats: EngineStats | None, status: EngineStatusChanged | None) -> list[str]:
    if status is not None and status.paused:
        return [tr("Engine paused")]
    parts = []
    rate = stats.decode_tokens_per_s if stats is not None and stats.num_running else 0.0
    if rate:
        parts.append(tr("{rate} tok/s", rate=f"{rate:.0f}"))
    if status is not None and status.steps_per_s is not None:
        parts.append(tr("slowed to {rate}", rate=units.rate_words(status.steps_per_s)))
    return parts
