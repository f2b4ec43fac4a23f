"""What is said in the tour's conversations: in English, which the starter model speaks."""

from __future__ import annotations

GUIDE = (
    "You are a patient guide in a science museum. Visitors of all ages ask you questions. Answer "
    "in short, friendly sentences, and use comparisons from everyday life: kitchens, gardens, "
    "streets and weather. Never use formulas. When a word is difficult, explain it at once. Begin "
    "with the most important thing, then add one surprising detail. End with a small question that "
    "makes the visitor look more closely."
)
"""Long enough to fill some blocks, so that sharing it is worth seeing."""

DIARIST = "You read diaries and say in one sentence what happened."
DIARY_DAYS = 27
"""Days of a diary that is longer than what is free."""

PLACES = ("harbour", "mountain", "forest", "desert")


def diary(place: str) -> str:
    """A long text; one about another place shares nothing with it."""
    return " ".join(
        f"Day {day}: we walked {day + 4} miles along the {place} and slept well."
        for day in range(1, DIARY_DAYS + 1)
    )
