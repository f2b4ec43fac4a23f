"""The text of a block that is pointed at is its own: of an unfinished one too, and in the past."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from engine.api.commands import BlockText
from engine.api.events import BlockTextReady
from tests.helpers.panel_stage import PanelStage, live_of, panel_stage, shown
from tests.helpers.scripted_pool import ScriptedPool

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


def pool_shown(qtbot: QtBot) -> PanelStage:
    stage = shown(qtbot, panel_stage(qtbot, ScriptedPool(64)))
    qtbot.wait(60)
    return stage


def texts_of(stage: PanelStage) -> str:
    labels = stage.panel.findChildren(QLabel)
    return "\n".join(label.text() for label in labels if label.isVisible())


def asked_of(stage: PanelStage) -> list[BlockText]:
    return [command for command in stage.commands if isinstance(command, BlockText)]


def unfinished(qtbot: QtBot, stage: PanelStage, request_id: str, conversation_id: str) -> int:
    """A request that holds one block, of which it has filled five tokens; returns the block."""
    first = 100 * int(conversation_id[1:])
    assert stage.scripted.admit(request_id, conversation_id, range(first, first + 5))
    stage.scripted.compute(request_id)
    stage.deliver()
    qtbot.waitUntil(lambda: stage.panel.model.last_seq == stage.scripted.log.seq)
    return stage.scripted.requests[request_id].block_table[0]


def test_text_of_an_unfinished_block_is_asked_for_anew(qtbot: QtBot) -> None:
    stage = pool_shown(qtbot)
    view = live_of(stage).view
    block = unfinished(qtbot, stage, "a", "c1")
    view.point_at(block)
    qtbot.waitUntil(lambda: len(asked_of(stage)) == 1)
    first = asked_of(stage)[0]
    stage.client.post(BlockTextReady(first.command_id, block, "of one", (), 0, ("c1",)))
    qtbot.waitUntil(lambda: "of one" in texts_of(stage))
    view.point_at(-1)
    view.point_at(block)
    qtbot.waitUntil(lambda: len(asked_of(stage)) == 2)
    view.point_at(-1)
    stage.scripted.finish("a")
    assert unfinished(qtbot, stage, "b", "c2") == block
    view.point_at(block)
    assert "of one" not in texts_of(stage)
    # What was asked while the block was another conversation's is no answer either.
    late = BlockTextReady(asked_of(stage)[1].command_id, block, "of one", (), 0, ("c1",))
    with qtbot.waitSignal(stage.bridge.engine_event):
        stage.client.post(late)
    assert "of one" not in texts_of(stage)
    qtbot.waitUntil(lambda: len(asked_of(stage)) == 3)
    third = asked_of(stage)[2]
    stage.client.post(BlockTextReady(third.command_id, block, "of two", (), 0, ("c2",)))
    qtbot.waitUntil(lambda: "of two" in texts_of(stage))


def test_text_of_an_unfinished_block_of_the_past_is_not_asked_of_the_present(
    qtbot: QtBot,
) -> None:
    stage = pool_shown(qtbot)
    live = live_of(stage)
    block = unfinished(qtbot, stage, "a", "c1")
    then = live.scrubber.rows_moment.position
    stage.scripted.finish("a")
    assert unfinished(qtbot, stage, "b", "c2") == block
    live.scrubber.go_to(then)
    assert "a" in live.view.model.tables
    live.view.point_at(block)
    assert live._asides._texts._wanted is None
    live.scrubber.go_live()
    live.view.point_at(block)
    qtbot.waitUntil(lambda: len(asked_of(stage)) == 1)
