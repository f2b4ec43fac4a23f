"""The lesson: from the first block to a conversation that comes back."""

from __future__ import annotations

from app.i18n import tr
from app.tour.rig import Rig
from app.tour.step import Step, Target
from app.tour.steps_limits import Eviction, Preemption, Return
from app.tour.steps_sharing import Allocation, CopyOnWrite, Forking, Sharing


class Welcome(Step):
    """Waits for nothing but the model, which the window shows."""

    target = Target.NOTHING

    @property
    def title(self) -> str:
        return tr("How a chat remembers")

    @property
    def text(self) -> str:
        return tr(
            "While a model reads and writes, it keeps notes about every word, so that it need not "
            "read everything again for the next one. These notes are the KV cache. They are large "
            "and they grow with every word: memory for them is what limits how many conversations "
            "can run at once.\n\n"
            "In the next five minutes you see how Quire hands out this memory. Everything is real: "
            "a second, small engine has been started for it, with a pool of only 40 blocks (it "
            "takes about 400 MB of memory while this window is open). Your own conversations and "
            "their cache are not touched, and nothing of this is kept."
        )


class Farewell(Step):
    """What was seen, in three sentences."""

    target = Target.NOTHING

    @property
    def title(self) -> str:
        return tr("What you have seen")

    @property
    def text(self) -> str:
        return tr(
            "A block table is a list: it says which blocks of memory hold the notes of a "
            "conversation, in the order of its text.\n\n"
            "The second tab started at once because both begin with the same text: its block table "
            "points at blocks that the first tab had filled.\n\n"
            "Preemption lent the blocks of one conversation to the others when the pool was full. "
            "It waited, its notes were computed again, and no word was lost.\n\n"
            "Together this is called PagedAttention, after the pages by which an operating system "
            "hands out memory. The cache panel shows all of it for your own conversations too."
        )

    def begin(self) -> None:
        self.rig.quiet()
        super().begin()


def lesson(rig: Rig) -> list[Step]:
    """All steps, in order."""
    preemption = Preemption(rig)
    return [
        Welcome(rig),
        Allocation(rig),
        Sharing(rig),
        CopyOnWrite(rig),
        Forking(rig),
        Eviction(rig),
        preemption,
        Return(rig, preemption),
        Farewell(rig),
    ]
