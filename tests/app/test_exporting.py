"""Conversations go into files whole, and come back whole or not at all."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from app.conversation import (
    ASSISTANT,
    REPEATS,
    USER,
    Attachment,
    Conversation,
    Message,
    MessageStatus,
)
from app.exporting import file_name, to_json, to_markdown
from app.exporting_import import ImportFileError, read_conversations, read_file
from app.widgets.answer_words import repeat_words
from engine.api.errors import ErrorInfo
from engine.api.events import RequestUsage
from engine.api.params import OverflowPolicy, SamplingParams


def branched() -> Conversation:
    """A question with two answers, the older one with a further turn that is shown."""
    conversation = Conversation(
        title="Blocks / 缓存块",
        title_is_automatic=False,
        system_prompt="Be brief.\n\nAlways.",
        overflow=OverflowPolicy.DROP_OLDEST,
        draft="not sent",
        pinned=True,
        archived=True,
        folder="Work <b>",
        tags=("a", "缓存"),
        params=SamplingParams(temperature=0.5, stop=("X",)),
        attachments=(Attachment("file.txt", "its text"), Attachment("", "pasted")),
    )
    question = conversation.append(Message(USER, "What is a block? 🦓"))
    answer = conversation.append(
        Message(
            ASSISTANT,
            "```python\nx = 1\n```",
            model="starter",
            params=SamplingParams(temperature=0.25, top_k=40, stop=("END",), max_tokens=9),
            seed=2**64 - 1,
            usage=RequestUsage(prompt_tokens=12, output_tokens=5, ttft_s=0.25),
            finish_reason="length",
            limit="max_tokens",
            num_dropped=2,
            system_prompt_key="key",
            facts={"repeats": "x", "seconds": 1.5, "count": 2},
        )
    )
    failed = Message(
        ASSISTANT,
        "half",
        question.message_id,
        status=MessageStatus.ERROR,
        error=ErrorInfo("device", "It failed.", "Restart.", (("free", 3), ("name", "x"))),
    )
    conversation.insert(failed)
    conversation.active_leaf_id = answer.message_id
    conversation.append(Message(USER, "And then?"))
    return conversation


# Ids are new; exact token ids and what belongs to one profile or one run stay out.
LEFT_OUT = {
    *("conversation_id", "number", "is_open", "active_leaf_id", "forked_from_id", "deleted_at"),
    *("prompt_id", "shown_leaves", "messages", "message_id", "parent_id"),
    *("turn", "streamed_ids"),
}


def kept(thing: Conversation | Message) -> dict[str, Any]:
    """Every value that a file must keep, by name; a new one cannot be forgotten."""
    return {f.name: getattr(thing, f.name) for f in fields(thing) if f.name not in LEFT_OUT}


def tree(conversation: Conversation) -> list[tuple[int | None, dict[str, Any]]]:
    """The messages, with places in the list for ids."""
    place = {message_id: n for n, message_id in enumerate(conversation.messages)}
    return [
        (None if m.parent_id is None else place[m.parent_id], kept(m))
        for m in conversation.messages.values()
    ]


def document(conversation: Conversation | None = None) -> dict[str, Any]:
    return json.loads(to_json([conversation or branched()]))


def read(value: object) -> list[Conversation]:
    return read_conversations(json.dumps(value).encode()).conversations


# --- JSON ---


def test_every_branch_and_parameter_comes_back() -> None:
    before = branched()
    (after,) = read(document(before))
    assert tree(after) == tree(before)
    assert kept(after) == kept(before)
    assert [m.content for m in after.path()] == [m.content for m in before.path()]
    assert after.conversation_id != before.conversation_id
    assert not after.messages.keys() & before.messages.keys()
    assert not after.is_open


def test_an_answer_that_was_run_again_knows_the_first_one_by_its_new_id() -> None:
    before = Conversation()
    question = before.append(Message(USER, "q"))
    first = before.append(Message(ASSISTANT, "a"))
    again = Message(ASSISTANT, "a", question.message_id, facts={REPEATS: first.message_id})
    before.insert(again)
    (after,) = read(document(before))
    assert repeat_words(after, after.path()[-1]) == repeat_words(before, again)


def test_what_was_written_and_not_sent_comes_back_without_messages() -> None:
    drafts = [Conversation(draft="not sent"), Conversation(attachments=(Attachment("", "text"),))]
    after = read_conversations(to_json([*drafts, branched(), Conversation()]).encode())
    assert [c.draft for c in after.conversations] == ["not sent", "", "not sent"]
    assert after.conversations[1].attachments == drafts[1].attachments


def test_an_answer_that_was_streaming_comes_back_interrupted() -> None:
    conversation = branched()
    conversation.append(Message(ASSISTANT, "half", status=MessageStatus.STREAMING))
    (after,) = read(document(conversation))
    assert after.path()[-1].status is MessageStatus.INTERRUPTED


def test_a_byte_order_mark_is_no_fault() -> None:
    text = to_json([branched()])
    assert len(read_conversations(b"\xef\xbb\xbf" + text.encode()).conversations) == 1


def test_half_surrogates_are_replaced_because_they_cannot_be_stored() -> None:
    conversation = branched()
    for message in conversation.messages.values():
        if message.error is not None:
            message.error = ErrorInfo("device", "It failed.", "", (("name", "CUT"),))
        message.facts = {"note": "CUT"}
        message.content = "CUT"
    text = to_json([conversation]).replace("CUT", "\\ud83d")
    (after,) = read_conversations(text.encode()).conversations
    assert {message.content for message in after.messages.values()} == {"?"}
    (failed,) = (message for message in after.messages.values() if message.error)
    assert failed.facts == {"note": "?"}
    assert failed.error is not None
    assert failed.error.numbers == (("name", "?"),)


def broken(*path: str | int, value: object) -> dict[str, Any]:
    """A good document with one value changed."""
    changed: Any = document()
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


MESSAGE = ("conversations", 0, "messages")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"format": "quire', "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"[]", "form that Quire knows"),
        (b"null", "form that Quire knows"),
        (b'{"a": 1}', "form that Quire knows"),
        (b'[{"mapping": {}}, 3]', "form that Quire knows"),
        (b'{"format": "other"}', "form that Quire knows"),
        (b'{"format": "quire-conversations", "version": 2}', "version 2"),
        (b'{"format": "quire-conversations", "version": 1}', "no messages"),
        (b'{"format": "quire-conversations", "version": 1, "conversations": 5}', "no list"),
        (b'{"format": "quire-conversations", "version": 1, "conversations": []}', "no messages"),
        (
            b'{"format": "quire-conversations", "version": 1, "conversations": [3]}',
            "Conversation 1",
        ),
    ],
)
def test_what_is_no_export_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ImportFileError, match=reason):
        read_conversations(data)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ((*MESSAGE, 0, "role"), "system", "role 'system'"),
        ((*MESSAGE, 0, "content"), None, "None is not a text"),
        ((*MESSAGE, 0, "created_at"), "today", "not a moment"),
        ((*MESSAGE, 0, "created_at"), float("nan"), "not a moment"),
        ((*MESSAGE, 0, "status"), "gone", "gone"),
        ((*MESSAGE, 1, "parent"), "nobody", "is missing"),
        ((*MESSAGE, 1, "params", "temperature"), -1, "temperature"),
        ((*MESSAGE, 1, "params", "heat"), 1, "heat"),
        ((*MESSAGE, 1, "usage", "ttft_s"), "soon", "not a number"),
        ((*MESSAGE, 1, "seed"), "18446744073709551616", "seed"),
        ((*MESSAGE, 1, "num_dropped"), float("inf"), "infinity"),
        ((*MESSAGE, 1, "num_dropped"), 2**63, "cannot have been dropped"),
        ((*MESSAGE, 1, "params", "top_k"), 2.5, "top_k"),
        (("conversations", 0, "params", "seed"), 1.5, "seed"),
        (("conversations", 0, "params", "logprobs"), 1.5, "logprobs"),
        (("conversations", 0, "title"), 5, "not a text"),
        (("conversations", 0, "overflow"), "explode", "explode"),
        (("conversations", 0, "messages"), None, "NoneType"),
    ],
)
def test_one_wrong_value_refuses_the_file(
    path: tuple[Any, ...], value: object, reason: str
) -> None:
    with pytest.raises(ImportFileError, match=reason) as caught:
        read(broken(*path, value=value))
    assert "Conversation 1 is" in caught.value.message


def test_messages_in_a_circle_are_refused() -> None:
    changed = document()
    first, second = changed["conversations"][0]["messages"][:2]
    first["parent"] = second["id"]
    with pytest.raises(ImportFileError, match="circle"):
        read(changed)


def test_two_messages_with_one_id_are_refused() -> None:
    changed = document()
    messages = changed["conversations"][0]["messages"]
    messages[1]["id"] = messages[0]["id"]
    with pytest.raises(ImportFileError, match="same id"):
        read(changed)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match=r"none\.json cannot be read: No such file"):
        read_file(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ImportFileError, match=r"bad\.json: This is not JSON"):
        read_file(tmp_path / "bad.json")


# --- Markdown ---


def test_markdown_has_the_shown_branch() -> None:
    text = to_markdown(branched(), "你", "回答")
    assert text.startswith("# Blocks / 缓存块\n\n> Be brief.\n>\n> Always.\n\n## 你\n\n*2")
    assert "## 回答\n\n*starter · 2" in text
    assert "```python\nx = 1\n```\n\n## 你" in text
    assert text.endswith("And then?\n")
    assert "half" not in text
    assert "not sent" not in text


@pytest.mark.parametrize(
    ("content", "end"),
    [
        ("```py\nx", "x\n```\n"),
        ("````\n```\nx", "x\n````\n"),
        ("~~~\n```", "```\n~~~\n"),
        ("```\nx\n```", "x\n```\n"),
        ("plain", "plain\n"),
        # Within it a mark with a language, or far to the right, is code.
        ("```\n```py\nx\n```", "x\n```\n"),
        ("```\n    ```", "    ```\n```\n"),
        # A list and a quotation end by themselves, and what is open in them.
        ("- a\n  ```\n  x", "a\n  ```\n  x\n"),
        ("> ```\n> x", "> ```\n> x\n"),
        ("[a]: ```", "[a]: ```\n"),
    ],
)
def test_an_open_code_block_is_closed(content: str, end: str) -> None:
    conversation = Conversation()
    conversation.append(Message(USER, content))
    assert to_markdown(conversation).endswith(end)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Blocks / 缓存块", "Blocks 缓存块.md"),
        ("", "Quire.md"),
        ("...", "Quire.md"),
        ("con", "Quire con.md"),
        ('a<b>:"c|?*', "a b c.md"),
        ("../../etc", "etc.md"),
        ("x" * 300, "x" * 80 + ".md"),
    ],
)
def test_names_of_files_are_safe(title: str, name: str) -> None:
    assert file_name(Conversation(title=title), ".md") == name
