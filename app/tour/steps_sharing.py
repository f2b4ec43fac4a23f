"""Steps of the lesson about blocks that are handed out, shared and copied."""

from __future__ import annotations

from app.cache_panel.words import blocks, tokens
from app.i18n import tr
from app.tour.prompts import GUIDE
from app.tour.step import Step, Target
from engine.api.events import (
    BlockChanged,
    BlockEventKind,
    Event,
    PoolEvent,
    PrefillProgress,
    TableChanged,
    TokensGenerated,
)


class Allocation(Step):
    """One conversation takes blocks as it grows."""

    target = Target.TABLES
    starts_anew = True

    @property
    def title(self) -> str:
        return tr("Blocks and the block table")

    @property
    def text(self) -> str:
        return tr(
            "The memory is cut into blocks of equal size; here each has room for the notes of 16 "
            "tokens (a token is a short word or a piece of one). A conversation gets a block only "
            "when it needs one: first as many as its question fills, then one more each time that "
            "the last is full. Nothing is reserved in advance.\n\n"
            "Which blocks they are does not matter. The conversation's block table lists them in "
            "the order of the text, as a table of contents lists pages."
        )

    @property
    def look(self) -> str:
        return tr(
            "The strip marked 1 is the block table. It grows to the right; the last block fills "
            "slowly. In the grid, the same blocks light up where they lie in memory."
        )

    @property
    def waiting(self) -> str:
        return tr("Waiting until the answer has filled a block and taken the next…")

    def begin(self) -> None:
        self._table: tuple[int, ...] = ()
        _, (self._request,) = self.rig.ask(
            tr("Rainbows"), GUIDE, "What is a rainbow?", max_tokens=160
        )

    def take(self, event: Event | PoolEvent) -> None:
        if not isinstance(event, TableChanged) or event.request_id != self._request:
            return
        grows = bool(self._table) and bool(event.added)
        self._table = (*self._table[: event.start], *event.added)
        self.is_done = self.is_done or grows

    def blocks(self) -> frozenset[int]:
        return frozenset(self._table[-1:])

    def outcome(self) -> str:
        listed = ", ".join(f"{block:,}" for block in self._table)
        return tr(
            "The answer has filled its last block and took block {block}. The block table now "
            "lists {blocks}: {listed}. This list is all that the engine needs in order to find the "
            "notes of any word.",
            block=f"{self._table[-1]:,}",
            blocks=blocks(len(self._table)),
            listed=listed,
        )


class Sharing(Step):
    """A second conversation with the same system prompt."""

    target = Target.TABLES
    starts_anew = True

    @property
    def title(self) -> str:
        return tr("The second tab starts at once")

    @property
    def text(self) -> str:
        return tr(
            "A second conversation begins with the same system prompt (the instructions that stand "
            "before every conversation). The notes for that text are there already. Since notes "
            "depend only on the text before them, the second conversation may use the very same "
            "blocks: it writes their numbers into its own block table and computes only what is "
            "new, its question."
        )

    @property
    def look(self) -> str:
        return tr(
            "The hatched blocks at the beginning of both strips are the same blocks. The number in "
            "them says how many use them."
        )

    @property
    def waiting(self) -> str:
        return tr("Waiting until the second conversation has found shared blocks and answers…")

    def begin(self) -> None:
        self._second = ""
        self._cached = self._prompt = 0
        _, (self._first,) = self.rig.ask(
            tr("Volcanoes"), GUIDE, "What is a volcano?", max_tokens=160
        )

    def take(self, event: Event | PoolEvent) -> None:
        name = getattr(event, "request_id", "")
        if name == self._first and isinstance(event, TokensGenerated) and not self._second:
            _, (self._second,) = self.rig.ask(
                tr("Tides"), GUIDE, "Why does the sea rise and fall?", max_tokens=160
            )
        elif name and name == self._second:
            if isinstance(event, PrefillProgress):
                self._cached, self._prompt = event.cached_tokens, event.prompt_tokens
            elif isinstance(event, TokensGenerated) and self._cached:
                self.is_done = True

    def outcome(self) -> str:
        return tr(
            "The second question is {prompt} long with its system prompt. {cached} of them were "
            "found ready in shared blocks, so only {computed} had to be computed: that is why it "
            "started at once. The shared blocks exist once, however many tabs use them.",
            prompt=tokens(self._prompt),
            cached=f"{self._cached:,}",
            computed=tokens(self._prompt - self._cached),
        )


class CopyOnWrite(Step):
    """Two answers of one prompt, and the block that both want to write."""

    target = Target.GRID
    steps_per_s = 3.0
    starts_anew = True

    @property
    def title(self) -> str:
        return tr("Two answers, one copy")

    @property
    def text(self) -> str:
        return tr(
            "Now one question gets two answers. Both share every block of the question, the last "
            "one too, although it is not full yet. That goes well while they only read. But the "
            "first word of an answer belongs into that last block, and the two answers write "
            "different words.\n\n"
            "So whoever writes first gets a copy of this one block. It is called copy-on-write: "
            "share as long as possible, copy at the last moment, and only what is needed."
        )

    @property
    def look(self) -> str:
        return tr(
            "Among the block tables are two with the same number. They are alike but for one "
            "block. The page with the events tells which block was copied to which."
        )

    @property
    def waiting(self) -> str:
        return tr("Waiting until a block has been copied…")

    def begin(self) -> None:
        self._copied = (-1, -1)
        _, self._requests = self.rig.ask(
            tr("Two answers"),
            GUIDE,
            "Tell me about snow.",
            max_tokens=120,
            num_answers=2,
            temperature=1.0,
        )

    def take(self, event: Event | PoolEvent) -> None:
        if (
            isinstance(event, BlockChanged)
            and event.kind is BlockEventKind.COPIED
            and event.request_id in self._requests
            and not self.is_done
        ):
            self._copied = event.source_block_id, event.block_id
            self.is_done = True

    def blocks(self) -> frozenset[int]:
        return frozenset(self._copied)

    def outcome(self) -> str:
        source, copy = self._copied
        return tr(
            "Block {source} was copied to block {copy}: one answer goes on in the old block, the "
            "other in the copy. All blocks before it stay shared.",
            source=f"{source:,}",
            copy=f"{copy:,}",
        )


class Forking(Step):
    """A running conversation is split in two."""

    target = Target.TABLES
    starts_anew = True
    FORK_AT = 12

    @property
    def title(self) -> str:
        return tr("Fork: a second way on")

    @property
    def text(self) -> str:
        return tr(
            "You may want to try another way on without losing the first: fork the conversation. "
            "The new one takes over the block table, so it costs no computing and, at first, no "
            "memory, however long the conversation is. From the next word on each goes its own "
            "way. That works in the middle of an answer too."
        )

    @property
    def look(self) -> str:
        return tr("As soon as the answer has some words, a second strip appears with its blocks.")

    @property
    def waiting(self) -> str:
        return tr("Waiting until the conversation has been forked and both go on…")

    def begin(self) -> None:
        self._count, self._child, self._shared = 0, "", 0
        self._talked = False
        _, (self._parent,) = self.rig.ask(
            tr("Bees"), GUIDE, "How do bees find their way home?", max_tokens=160, temperature=0.7
        )

    def take(self, event: Event | PoolEvent) -> None:
        name = getattr(event, "request_id", "")
        if name == self._parent and isinstance(event, TokensGenerated):
            self._count += len(event.token_ids)
            if self._count >= self.FORK_AT and not self._child:
                _, self._child = self.rig.fork(self._parent, tr("Bees, forked"))
        elif name and name == self._child:
            if isinstance(event, BlockChanged) and event.cause == "fork":
                self._shared += 1
            elif isinstance(event, TokensGenerated):
                self._talked = True
            self.is_done = self._talked and self._shared > 0

    def outcome(self) -> str:
        return tr(
            "The fork shares {blocks} with the conversation it came from; nothing was computed "
            "again.",
            blocks=blocks(self._shared),
        )
