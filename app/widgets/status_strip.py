"""One line at the bottom: model, device, pool, speed; progress while a model loads."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QStatusBar, QWidget

from app import theme
from app.bridge import Bridge
from app.i18n import tr
from app.session import Session
from app.session_state import ModelStatus
from app.widgets.buttons import plain_tip
from app.widgets.template_words import template_words
from app.widgets.words import error_words, model_words
from engine.api.events import EngineStats, EngineStatusChanged


class StatusStrip(QStatusBar):
    """Follows the session's model and the engine's counters."""

    def __init__(self, session: Session, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("status_strip")
        self.setSizeGripEnabled(False)
        self._session = session
        self.model = _model_button()
        self.model.clicked.connect(lambda: session.model_library_requested.emit(""))
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, 1000)
        self.progress.setFixedWidth(140)
        self.progress.setAccessibleName(tr("Loading the model"))
        self.pool = _label()
        self.speed = _label()
        self.speed.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        # A width of its own, so that nothing moves when the number changes.
        widest = self.speed.fontMetrics().horizontalAdvance(tr("{rate} tok/s", rate="00,000"))
        self.speed.setMinimumWidth(widest + 16)
        self.addWidget(self.model)
        self.addWidget(self.progress)
        self.addPermanentWidget(self.pool)
        self.addPermanentWidget(self.speed)
        session.model_state_changed.connect(self._on_model_state_changed)
        bridge.stats_changed.connect(self._on_stats_changed)
        bridge.status_changed.connect(self._on_status_changed)
        self._rate = 0.0
        self._is_paused = bridge.latest_status is not None and bridge.latest_status.paused
        self._on_model_state_changed()
        if bridge.latest_stats is not None:
            self._on_stats_changed(bridge.latest_stats)

    def _on_model_state_changed(self) -> None:
        state = self._session.model_state
        loading = state.status is ModelStatus.LOADING
        self.progress.setVisible(loading)
        self.progress.setValue(round(state.progress * 1000))
        words = model_words(state)
        if state.status is ModelStatus.FAILED and state.error is not None:
            self.model.setToolTip(plain_tip(error_words(state.error)))
        elif state.info is not None:
            backend = tr("Attention: {name}", name=state.info.backend)
            lines = (backend, state.info.backend_reason, template_words(state.info))
            self.model.setToolTip(plain_tip("\n".join(line for line in lines if line)))
        # A single & would mark a key.
        self.model.setText(words.replace("&", "&&"))
        self.model.setAccessibleName(tr("Model library: {model}", model=words))
        if state.status is not ModelStatus.READY:
            self.pool.setText("")
            self._rate = 0.0
            self._show_speed()
        elif not self.pool.text() and state.info is not None:
            self._show_pool(0, 0, state.info.num_blocks)

    def _on_stats_changed(self, stats: EngineStats) -> None:
        if self._session.model_state.status is not ModelStatus.READY:
            # Of the model that is to go: the engine tells of it until it has gone.
            return
        self._show_pool(stats.used_blocks, stats.cached_blocks, stats.free_blocks)
        self._rate = stats.decode_tokens_per_s if stats.num_running else 0.0
        self._show_speed()

    def _on_status_changed(self, status: EngineStatusChanged) -> None:
        self._is_paused = status.paused
        self._show_speed()

    def _show_speed(self) -> None:
        # Of a paused engine no stats come, and the rate it had is not what it does.
        rate = 0.0 if self._is_paused else self._rate
        self.speed.setText(tr("{rate} tok/s", rate=f"{rate:.0f}") if rate else "")

    def _show_pool(self, used: int, cached: int, free: int) -> None:
        self.pool.setText(
            tr(
                "Pool: {used} used · {cached} cached · {free} free",
                used=f"{used:,}",
                cached=f"{cached:,}",
                free=f"{free:,}",
            )
        )


def _model_button() -> QPushButton:
    """The model's name; pressed, it opens the model library."""
    button = QPushButton()
    button.setObjectName("model_name")
    button.setProperty("kind", "chip")
    button.setFont(theme.number_font())
    button.setAutoDefault(False)
    return button


def _label() -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setFont(theme.number_font())
    label.setContentsMargins(8, 2, 8, 2)
    return label
