"""What ChatGPT exports: the mapping of nodes becomes a tree of questions and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.conversation import ASSISTANT, USER, Conversation
from app.exporting_import import ImportFileError, read_conversations

Node = dict[str, Any]


def node(parent: str | None, role: str = "", text: str = "", at: float = 0.0, **more: Any) -> Node:
    """A node; without a role one that has no message."""
    if not role:
        return {"parent": parent, "message": None, "children": []}
    message: Node = {
        "author": {"role": role},
        "create_time": at or None,
        "content": {"content_type": "text", "parts": [text]},
        "metadata": {"model_slug": "gpt-x"} if role == "assistant" else {},
        "recipient": "all",
    }
    return {"parent": parent, "children": [], "message": message | more}


def export(current: str, **nodes: Node) -> list[Node]:
    return [
        {
            "title": "Zebras",
            "create_time": 100.5,
            "update_time": 200.5,
            "current_node": current,
            "mapping": {name: {"id": name} | value for name, value in nodes.items()},
        }
    ]


def read(value: object) -> Conversation:
    (conversation,) = read_conversations(json.dumps(value).encode()).conversations
    return conversation


def shown(conversation: Conversation) -> list[tuple[str, str]]:
    return [(m.role, m.content) for m in conversation.path()]


BRANCHED = {
    "root": node(None),
    "system": node("root", "system", ""),
    "q": node("system", "user", "Question 问题", 101.0),
    "a1": node("q", "assistant", "First", 102.0),
    "a2": node("q", "assistant", "Second", 103.0),
    "q2": node("a1", "user", "More", 104.0),
}


def test_questions_and_answers_become_a_tree() -> None:
    conversation = read(export("q2", **BRANCHED))
    assert shown(conversation) == [(USER, "Question 问题"), (ASSISTANT, "First"), (USER, "More")]
    question, first, _more = conversation.path()
    assert question.parent_id is None
    assert [m.content for m in conversation.siblings(first.message_id)] == ["First", "Second"]
    assert (question.created_at, first.model, question.model) == (101.0, "gpt-x", "")
    assert (conversation.title, conversation.created_at, conversation.updated_at) == (
        *("Zebras", 100.5),
        200.5,
    )
    assert not conversation.is_open


def test_the_order_of_the_nodes_does_not_matter() -> None:
    backwards = dict(reversed(BRANCHED.items()))
    assert shown(read(export("a2", **backwards))) == [
        (USER, "Question 问题"),
        (ASSISTANT, "Second"),
    ]


def test_one_conversation_alone_is_taken_too() -> None:
    assert len(read(export("q2", **BRANCHED)[0]).messages) == 4


def test_tools_and_hidden_nodes_are_left_out() -> None:
    hidden = {"metadata": {"is_visually_hidden_from_conversation": True}}
    code = {"content": {"content_type": "code", "text": "search()"}, "recipient": "web"}
    conversation = read(
        export(
            "a2",
            root=node(None),
            profile=node("root", "user", "About me", 1.0, **hidden),
            q=node("profile", "user", "Question", 2.0),
            a1=node("q", "assistant", "Let me look.", 3.0),
            call=node("a1", "assistant", "", 4.0, **code),
            result=node("call", "tool", "page", 5.0),
            a2=node("result", "assistant", "Found.", 6.0),
        )
    )
    assert shown(conversation) == [(USER, "Question"), (ASSISTANT, "Let me look.\n\nFound.")]


def test_answers_on_branches_behind_a_tool_stay_apart() -> None:
    conversation = read(
        export(
            "b2",
            q=node(None, "user", "Question", 1.0),
            a=node("q", "assistant", "Let me look.", 2.0),
            tool=node("a", "tool", "page", 3.0),
            b1=node("tool", "assistant", "One.", 4.0),
            b2=node("tool", "assistant", "Two.", 5.0),
        )
    )
    assert shown(conversation)[1:] == [(ASSISTANT, "Let me look."), (ASSISTANT, "Two.")]
    assert [m.content for m in conversation.siblings(conversation.path()[-1].message_id)] == [
        "One.",
        "Two.",
    ]


def test_what_is_no_text_is_named() -> None:
    parts = [{"content_type": "image_asset_pointer", "asset_pointer": "file"}, "What is it?"]
    content = {"content": {"content_type": "multimodal_text", "parts": parts}}
    conversation = read(export("q", q=node(None, "user", at=1.0, **content)))
    assert shown(conversation) == [(USER, "[image_asset_pointer]\n\nWhat is it?")]


def test_without_title_and_times_it_is_taken_all_the_same() -> None:
    entry = export("gone", q=node(None, "user", "The question"))[0]
    for name in ("title", "create_time", "update_time"):
        entry[name] = None
    conversation = read([entry])
    assert conversation.title == "The question"
    assert conversation.created_at > 1e9
    assert shown(conversation) == [(USER, "The question")]


def test_empty_conversations_are_left_out() -> None:
    entries = [*export("r", r=node(None)), *export("q", q=node(None, "user", "x"))]
    assert shown(read(entries)) == [(USER, "x")]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"a": node("b", "user", "x"), "b": node("a", "assistant", "y")}, "circle"),
        ({"a": node("gone", "user", "x")}, "node gone is missing"),
        ({"a": {"parent": None, "message": {"content": {}}}}, "'author' is missing"),
        ({"a": node(None, "user", "x", create_time="now")}, "not a moment"),
        ({"a": node(None, "user", content={"content_type": "text", "parts": [5]})}, "not a part"),
    ],
)
def test_a_malformed_tree_is_left_out_and_told(nodes: dict[str, Node], reason: str) -> None:
    good = export("q", q=node(None, "user", "x"))
    data = json.dumps([*good, *export("a", **nodes)]).encode()
    imported = read_conversations(data)
    assert [shown(c) for c in imported.conversations] == [[(USER, "x")]]
    (fault,) = imported.left_out
    assert fault.number == 2
    assert reason in fault.reason


def test_what_is_left_out_has_its_title() -> None:
    good = export("q", q=node(None, "user", "x"))
    broken = {**export("a", a=node("gone", "user", "x"))[0], "title": "My \u202e plans"}
    data = json.dumps([*good, broken]).encode()
    assert [each.title for each in read_conversations(data).left_out] == ["My plans"]


def test_a_file_with_nothing_but_malformed_trees_is_refused() -> None:
    with pytest.raises(ImportFileError, match="node gone is missing"):
        read(export("a", a=node("gone", "user", "x")))


def test_archived_and_starred_ones_are_so_here() -> None:
    entry = export("q", q=node(None, "user", "x"))[0]
    entry |= {"is_archived": True, "is_starred": True}
    conversation = read([entry])
    assert (conversation.archived, conversation.pinned) == (True, True)


def test_a_long_chain_is_no_recursion() -> None:
    roles = ("user", "assistant")
    nodes = {
        f"n{n}": node(f"n{n - 1}" if n else None, roles[n % 2], f"text {n}", n + 1.0)
        for n in range(5000)
    }
    assert len(read(export("n4999", **nodes)).path()) == 5000


def test_a_model_with_half_a_surrogate_in_its_name_can_be_stored() -> None:
    nodes = {"q": node(None, "user", "x"), "a": node("q", "assistant", "y")}
    nodes["a"]["message"]["metadata"]["model_slug"] = "gpt-\ud83d"
    assert read(export("a", **nodes)).path()[1].model == "gpt-?"
