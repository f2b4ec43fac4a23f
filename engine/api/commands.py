"""What a client asks of the engine. Every command is a frozen value; none carries a tensor or
callable.

Ids are strings made by the application. A command that gets one reply carries ``command_id``; its
reply, or a ``CommandFailed``, answers with the same id. ``command_id`` may be empty where no reply
is wanted; a failure is then still reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api.params import ChatMessage, ContextPolicy, EngineConfig, SamplingParams


@dataclass(frozen=True, slots=True)
class Command:
    """Base of all commands."""

    command_id: str = field(default="", kw_only=True)


# --- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadModel(Command):
    """Loads a model, replacing the present one. Progress comes as ``ModelLoading``.

    ``path``: a GGUF file or a Hugging Face folder; empty means the starter model in ``models_dir``.
    ``fetch_starter``: fetch the starter model if it is absent; otherwise its absence is
    ``StarterModelMissingError``.
    """

    models_dir: str
    path: str = ""
    fetch_starter: bool = False
    config: EngineConfig = EngineConfig()


@dataclass(frozen=True, slots=True)
class UnloadModel(Command):
    """Ends all requests, frees weights and pool."""


@dataclass(frozen=True, slots=True)
class DescribeModel(Command):
    """What the model at ``path``, a GGUF file or a folder, is and what it would take when loaded
    with ``config``. Reply: ``ModelDescribed``, from its headers alone, whatever else is loaded,
    loading or answering. One after the other; ``CancelQuery`` ends it early.
    """

    path: str
    config: EngineConfig = EngineConfig()


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit(Command):
    """Answers the conversation ``messages`` (the last one from the user).

    ``request_ids`` names one request for each answer wanted. Answer i of n uses ``hash(seed, i)``.
    ``messages`` are all of the conversation, whatever ``context`` leaves out of the prompt.

    A refusal (empty message, prompt longer than the context or the pool, no model) arrives as
    ``RequestFinished`` with reason ERROR for each request id; there is no ``CommandFailed`` then.
    While a model loads, the request waits (``RequestWaiting`` with LOADING).
    """

    request_ids: tuple[str, ...]
    conversation_id: str
    messages: tuple[ChatMessage, ...]
    params: SamplingParams = SamplingParams()
    context: ContextPolicy = ContextPolicy()


@dataclass(frozen=True, slots=True)
class Continue(Command):
    """Goes on with an unfinished answer.

    The last message is the assistant's, its end is omitted.
    """

    request_id: str
    conversation_id: str
    messages: tuple[ChatMessage, ...]
    params: SamplingParams = SamplingParams()
    context: ContextPolicy = ContextPolicy()


@dataclass(frozen=True, slots=True)
class Cancel(Command):
    """Stops a request in any state; blocks are back within one step. Unknown ids are ignored."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Fork(Command):
    """Splits a running request: ``new_request_id`` shares every block and goes on by itself."""

    request_id: str
    new_request_id: str
    new_conversation_id: str
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate(Command):
    """Takes a paused or running request back to its first ``num_tokens`` tokens."""

    request_id: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Pause(Command):
    """A request stops computing and keeps its blocks while nobody needs them."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Resume(Command):
    """A paused request goes on."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Pin(Command):
    """Keeps the blocks of a conversation's messages in the pool; a pin holds one reference.

    Of those messages that are in the pool; the last one may be anybody's.
    """

    conversation_id: str
    messages: tuple[ChatMessage, ...]
    context: ContextPolicy = ContextPolicy()


@dataclass(frozen=True, slots=True)
class Unpin(Command):
    """Lets the pinned blocks of a conversation go."""

    conversation_id: str


@dataclass(frozen=True, slots=True)
class SetFocus(Command):
    """The conversation the user looks at: prefilled first, preempted last. Empty for none."""

    conversation_id: str


# --- the engine as a whole ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PauseEngine(Command):
    """No step runs until ``ResumeEngine``; commands are still served."""


@dataclass(frozen=True, slots=True)
class ResumeEngine(Command):
    """Full speed again."""


@dataclass(frozen=True, slots=True)
class StepEngine(Command):
    """Runs ``steps`` steps of a paused engine."""

    steps: int = 1


@dataclass(frozen=True, slots=True)
class SetRate(Command):
    """At most ``steps_per_s`` steps a second (slow motion); None is full speed."""

    steps_per_s: float | None


@dataclass(frozen=True, slots=True)
class Configure(Command):
    """Changes settings of the loaded engine. Reply, to every client: ``Configured``.

    Limits of a step, the attention backend and the cache's salt take effect at once; the last two
    drop the cache, and running requests are computed again. What needs a new pool takes effect when
    the model is loaded again.
    """

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class SubscribePool(Command):
    """From now on this client gets snapshots and ``BlockEvents``, ``max_rate_hz`` deliveries a
    second.
    """

    max_rate_hz: float = 15.0


@dataclass(frozen=True, slots=True)
class UnsubscribePool(Command):
    """This client gets no more snapshots and block events."""


@dataclass(frozen=True, slots=True)
class Disconnect(Command):
    """This client leaves: its requests end, its subscription and pins go.

    The engine's owner does not leave but ends the engine (``Shutdown``).
    """


@dataclass(frozen=True, slots=True)
class Shutdown(Command):
    """Ends the engine thread after the step in progress. For the engine's owner only: the client
    that started it. Every request still there ends as cancelled.
    """


@dataclass(frozen=True, slots=True)
class CancelQuery(Command):
    """Ends one of this client's questions below early. It is answered by ``CommandFailed`` with
    ``query_cancelled``; unknown ids, and those that have been answered, are ignored.
    """

    query_id: str


# --- queries, one reply each ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountTokens(Command):
    """Tokens of ``text`` as message content. Reply: ``TokensCounted``."""

    text: str


@dataclass(frozen=True, slots=True)
class Forecast(Command):
    """What sending these messages would need, share, evict and drop. Reply: ``ForecastReady``."""

    conversation_id: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int | None = None
    context: ContextPolicy = ContextPolicy()


@dataclass(frozen=True, slots=True)
class EditCost(Command):
    """What editing at message ``index`` would recompute. Reply: ``EditCostReady``.

    ``messages`` may end with an answer; its tokens count too.
    Before an edit of a message that was dropped, nothing is dropped any more.
    """

    conversation_id: str
    messages: tuple[ChatMessage, ...]
    index: int
    context: ContextPolicy = ContextPolicy()


@dataclass(frozen=True, slots=True)
class LocateBlocks(Command):
    """Which blocks hold a branch of a conversation now. Reply: ``BlocksLocated``.

    ``messages`` may end with an answer; its tokens count too.
    """

    conversation_id: str
    messages: tuple[ChatMessage, ...]
    context: ContextPolicy = ContextPolicy()


@dataclass(frozen=True, slots=True)
class BlockText(Command):
    """The text whose KV a block holds. Reply: ``BlockTextReady``."""

    block_id: int


@dataclass(frozen=True, slots=True)
class Inspect(Command):
    """Compares a conversation's present pool KV with a dense recomputation.

    Of one that is not running: the longest cached prefix of its ``messages``, else the cached
    blocks that it used last. Reply: ``ParityReport``.
    """

    conversation_id: str
    messages: tuple[ChatMessage, ...] = ()
    context: ContextPolicy = ContextPolicy()


@dataclass(frozen=True, slots=True)
class CompareBackends(Command):
    """Runs two attention backends on one conversation. Reply: ``ParityReport``.

    ``messages`` may end with an answer; its tokens count too.
    """

    conversation_id: str
    messages: tuple[ChatMessage, ...]
    backend: str
    reference: str = "dense"
    context: ContextPolicy = ContextPolicy()
