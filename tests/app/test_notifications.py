"""Who is told by the desktop that an answer is done, and what."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QWidget

from app.conversation import MessageStatus
from app.notifications import DesktopNotifier
from app.widgets.answer_notices import AnswerNotices
from engine.api.errors import ErrorInfo, PromptExceedsPoolError
from engine.api.params import SamplingParams
from tests.helpers.session_stage import SessionStage, session_stage


class FakeDesktop:
    """Keeps what it was asked to show."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, str]] = []
        self.is_active = False

    def notify(self, tag: str, title: str, text: str, open_text: str) -> None:
        self.shown.append((tag, title, text))


@pytest.fixture
def stage(tmp_path: Path, qtbot) -> Iterator[SessionStage]:
    with session_stage(tmp_path, qtbot) as made:
        made.start()
        yield made


@pytest.fixture
def desktop(stage: SessionStage) -> Iterator[FakeDesktop]:
    desktop = FakeDesktop()
    notices = AnswerNotices(stage.session, stage.settings, desktop, lambda: desktop.is_active)
    yield desktop
    del notices


def ask(stage: SessionStage) -> str:
    conversation_id = stage.session.new_conversation()
    stage.session.rename(conversation_id, "<b>Title</b>")
    assert stage.session.send(conversation_id, "Question")
    return conversation_id


def test_an_answer_that_is_done_is_told_once(stage: SessionStage, desktop: FakeDesktop) -> None:
    conversation_id = ask(stage)
    stage.wait_idle(conversation_id)
    assert desktop.shown == [(conversation_id, "<b>Title</b>", "The answer is done.")]


def test_nothing_is_told_while_the_application_has_the_focus(
    stage: SessionStage, desktop: FakeDesktop
) -> None:
    desktop.is_active = True
    stage.wait_idle(ask(stage))
    assert desktop.shown == []


def test_it_can_be_switched_off(stage: SessionStage, desktop: FakeDesktop) -> None:
    stage.session.change_settings(notify_when_done=False)
    stage.wait_idle(ask(stage))
    assert desktop.shown == []


def test_an_answer_that_the_user_stopped_is_not_told(
    stage: SessionStage, desktop: FakeDesktop
) -> None:
    conversation_id = ask(stage)
    stage.session.stop(conversation_id)
    stage.wait_idle(conversation_id)
    assert desktop.shown == []


def test_a_closed_conversation_is_not_told(stage: SessionStage, desktop: FakeDesktop) -> None:
    conversation_id = ask(stage)
    stage.session.close_conversation(conversation_id)
    stage.wait_idle(conversation_id)
    assert desktop.shown == []


def test_an_answer_that_failed_half_way_says_why(stage: SessionStage, desktop: FakeDesktop) -> None:
    conversation_id = ask(stage)
    stage.wait(lambda: bool(stage.path(conversation_id)[-1].content))
    stage.engine.die(ErrorInfo("engine_died", "The engine stopped because of a fault.", "Restart."))
    stage.wait_idle(conversation_id)
    assert [text for _tag, _title, text in desktop.shown] != ["The answer is done."]
    assert "engine" in desktop.shown[0][2].lower()


def test_a_rest_that_is_refused_is_not_told_as_done(
    stage: SessionStage, desktop: FakeDesktop
) -> None:
    """The answer before it is shown again, whole as it was."""
    stage.session.change_settings(sampling=SamplingParams(max_tokens=2))
    conversation_id = ask(stage)
    stage.wait_idle(conversation_id)
    desktop.shown.clear()
    message = stage.path(conversation_id)[-1]
    message.params = SamplingParams(max_tokens=300)
    stage.engine.refusal = lambda _submit: PromptExceedsPoolError("too many blocks")
    assert stage.session.continue_answer(conversation_id, message.message_id)
    stage.wait_idle(conversation_id)
    assert message.status is MessageStatus.DONE
    assert [text for _tag, _title, text in desktop.shown] == ["The answer failed."]


# --- the desktop's own protocol, on a bus of the test's own ---

SERVER = r"""
import sys, threading
from jeepney import DBusAddress, HeaderFields, message_bus, new_method_return, new_signal
from jeepney.io.blocking import open_dbus_connection
from app.notifications import show_over_dbus

NAME = "org.freedesktop.Notifications"
seen = []


def serve(ready, act):
    with open_dbus_connection("SESSION") as bus:
        bus.send_and_get_reply(message_bus.RequestName(NAME))
        ready.set()
        while True:
            call = bus.receive(timeout=20)
            if call.header.fields.get(HeaderFields.member) == "Notify":
                break
        seen.append((call.header.fields[HeaderFields.signature], call.body))
        bus.send(new_method_return(call, "u", (7,)))
        sender = DBusAddress("/org/freedesktop/Notifications", interface=NAME)
        bus.send(new_signal(sender, "ActionInvoked", "us", (6, "default")))
        if act == "click":
            bus.send(new_signal(sender, "ActionInvoked", "us", (7, "default")))
        bus.send(new_signal(sender, "NotificationClosed", "uu", (7, 2)))
        done.wait(20)


for act in ("click", "close"):
    ready, done = threading.Event(), threading.Event()
    server = threading.Thread(target=serve, args=(ready, act))
    server.start()
    assert ready.wait(20)
    assert show_over_dbus("<b>", "a < b", "Open") is (act == "click")
    done.set()
    server.join()
signature, body = seen[0]
assert signature == "susssasa{sv}i", signature
assert (body[0], body[3], body[4], body[5]) == ("Quire", "<b>", "a &lt; b", ["default", "Open"])
print("served")
"""


@pytest.mark.skipif(shutil.which("dbus-run-session") is None, reason="needs a D-Bus daemon")
def test_the_desktop_is_asked_in_its_own_protocol() -> None:
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        ["dbus-run-session", "--", sys.executable, "-c", SERVER],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "served" in ran.stdout, ran.stderr


def test_without_a_bus_the_task_bar_blinks(qtbot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    window = QWidget()
    qtbot.addWidget(window)
    blinked: list[QWidget] = []
    monkeypatch.setattr(QApplication, "alert", blinked.append)
    notifier = DesktopNotifier(window)
    notifier.notify("tag", "Title", "Text", "Open")
    qtbot.waitUntil(lambda: blinked == [window])
