"""A cache panel on a real bridge, fed by a scripted pool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QLabel, QWidget

from app.bridge import Bridge
from app.cache_panel.panel import CachePanel
from app.conversation import Conversation
from app.gauges import Gauge
from app.session_state import ModelState, ModelStatus
from app.theme import ThemeManager
from engine.api.client import QueueClient
from engine.api.commands import SubscribePool, UnsubscribePool
from engine.api.events import BlockEvents
from engine.api.snapshot import Snapshot
from tests.helpers.scripted_pool import ScriptedPool, four_conversations

if TYPE_CHECKING:
    from app.cache_panel.live_panel import LivePanel
    from app.cache_panel.pool_grid import PoolGrid


class KnownGauges(QObject):
    """What drafts would cost, as a test says."""

    changed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Gauge] = {}

    def of(self, conversation_id: str) -> Gauge | None:
        return self.known.get(conversation_id)


class TitledConversations(QObject):
    """The part of a session that the panel reads: open conversations ``c1`` … ``cN``."""

    conversation_added = Signal(str)
    conversation_closed = Signal(str)
    conversation_changed = Signal(str)
    active_conversation_changed = Signal(str)
    path_changed = Signal(str)
    message_added = Signal(str, str)
    message_removed = Signal(str, str)
    message_changed = Signal(str, str)
    model_state_changed = Signal()

    def __init__(self, titles: list[str]) -> None:
        super().__init__()
        self.gauges = KnownGauges()
        self.active_conversation_id = "c1"
        self.model_state = ModelState(ModelStatus.READY)
        self.open = {
            f"c{n}": Conversation(conversation_id=f"c{n}", title=title, number=n)
            for n, title in enumerate(titles, start=1)
        }

    def conversation(self, conversation_id: str) -> Conversation:
        return self.open[conversation_id]

    def conversation_ids(self) -> list[str]:
        return list(self.open)


class CountingClient(QueueClient):
    """Counts how often somebody asks for a snapshot."""

    snapshot_reads = 0

    def latest_snapshot(self) -> Snapshot | None:
        self.snapshot_reads += 1
        return super().latest_snapshot()


@dataclass
class PanelStage:
    """``client`` is the engine's end; ``deliver`` sends what the pool did since the last time."""

    scripted: ScriptedPool
    titles: list[str] = field(default_factory=lambda: ["First", "Second", "Third", "Fourth"])
    mode: str = "light"
    publish_on_subscribe: bool = True
    violation: str = ""
    row_changes: dict[str, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = CountingClient()
        self.subscriptions = 0
        self.commands: list[object] = []
        self.client.attach(self._on_command, lambda _timeout_s: True)
        self.bridge = Bridge(lambda: self.client)
        self.bridge.start()
        self.session = TitledConversations(self.titles)
        self.theme = ThemeManager(self.mode)
        self.theme.apply()
        self.panel = CachePanel(self.bridge, self.session, self.theme)  # type: ignore[arg-type]

    def _on_command(self) -> None:
        for command in self.client.take_commands():
            self.commands.append(command)
            if isinstance(command, SubscribePool):
                self.subscriptions += 1
                if self.publish_on_subscribe:
                    self.publish()
            elif isinstance(command, UnsubscribePool):
                self.subscriptions -= 1

    @property
    def snapshot_reads(self) -> int:
        return self.client.snapshot_reads

    def publish(self) -> None:
        """A snapshot of the pool now, as the engine would make between two steps."""
        found = {"invariant_violations": 1, "invariant_message": self.violation}
        snapshot = self.scripted.snapshot()
        rows = [
            replace(row, **self.row_changes.get(row.request_id, {})) for row in snapshot.requests
        ]
        snapshot = replace(snapshot, requests=tuple(rows))
        self.client.publish(replace(snapshot, **found) if self.violation else snapshot)

    def deliver(self) -> None:
        """Posts the pool's events."""
        self.client.post(BlockEvents(self.scripted.drain()))


def panel_stage(qtbot, scripted: ScriptedPool | None = None, **options: object) -> PanelStage:
    """A panel, not shown yet, over a pool that has told all so far."""
    scripted = scripted or four_conversations()
    scripted.drain()
    stage = PanelStage(scripted, **options)  # type: ignore[arg-type]
    qtbot.addWidget(stage.panel)
    return stage


def shown(qtbot, stage: PanelStage, width: int = 380, height: int = 860) -> PanelStage:
    """Shows the panel and waits for the pool."""
    stage.panel.resize(width, height)
    stage.panel.show()
    qtbot.waitUntil(lambda: stage.panel.model is not None)
    return stage


def live_of(stage: PanelStage) -> LivePanel:
    assert stage.panel.live is not None
    return stage.panel.live


def grid_of(stage: PanelStage) -> PoolGrid:
    # Imported late, as the panel itself does: how it opens is measured over this stage.
    from app.cache_panel.pool_grid import PoolGrid

    grid = stage.panel.findChild(PoolGrid)
    assert grid is not None
    return grid


def texts_of(panel: QWidget) -> str:
    """Of all its labels."""
    return "\n".join(label.text() for label in panel.findChildren(QLabel))
