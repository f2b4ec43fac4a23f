"""How the state machines of the tests are run: the same examples every time, and counted."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


class CountingMachine(RuleBasedStateMachine):
    """``operations``: rules run by all machines of the class since ``run_machine`` began."""

    operations = 0

    def count(self) -> None:
        type(self).operations += 1


def run_machine(machine: type[CountingMachine], *, examples: int, steps: int) -> int:
    """Runs a machine on examples that depend on its code alone. Returns how many rules ran.

    Other examples come from ``tests/soak.py``. A failure is shrunk and printed as the steps that
    lead to it.
    """
    machine.operations = 0
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            # Explaining a failure traces every line, which takes minutes here.
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{machine.__name__}: {machine.operations} operations")
    return machine.operations
