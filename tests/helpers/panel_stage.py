"""A cache panel on a real bridge, fed by a scripted pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from PySide6.QtCore import QObject, Signal

from app.bridge import Bridge
from app.cache_panel.panel import CachePanel
from app.conversation import Conversation
from app.theme import ThemeManager
from engine.api.client import QueueClient
from engine.api.commands import SubscribePool, UnsubscribePool
from engine.api.events import BlockEvents
from tests.helpers.scripted_pool import ScriptedPool


class TitledConversations(QObject):
    """The part of a session that the panel reads: open conversations ``c1`` … ``cN``."""

    conversation_added = Signal(str)
    conversation_closed = Signal(str)
    conversation_changed = Signal(str)
    model_state_changed = Signal()

    def __init__(self, titles: list[str]) -> None:
        super().__init__()
        self.open = {
            f"c{n}": Conversation(conversation_id=f"c{n}", title=title, number=n)
            for n, title in enumerate(titles, start=1)
        }

    def conversation(self, conversation_id: str) -> Conversation:
        return self.open[conversation_id]

    def conversation_ids(self) -> list[str]:
        return list(self.open)


@dataclass
class PanelStage:
    """``client`` is the engine's end; ``deliver`` sends what the pool did since the last time."""

    scripted: ScriptedPool
    titles: list[str] = field(default_factory=lambda: ["First", "Second", "Third", "Fourth"])
    mode: str = "light"
    publish_on_subscribe: bool = True

    def __post_init__(self) -> None:
        self.client = QueueClient()
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

    def publish(self) -> None:
        """A snapshot of the pool now, as the engine would make between two steps."""
        self.client.publish(self.scripted.snapshot())

    def deliver(self) -> None:
        """Posts the pool's events."""
        self.client.post(BlockEvents(self.scripted.drain()))
