"""Each fault is noticed by the requirement that should notice it."""

import asyncio

import pytest

from ors_gym.conformance import acheck_server
from ors_gym.conformance.checks import REQUIREMENTS
from tests.conformance.mutants import MUTANTS
from tests.servers.standard import Mutant, standard_server

OVER_ALL_ANSWERS = {"answers-are-json", "answers-are-strict-json", "refusals-have-a-detail"}
QUICK = tuple(requirement for requirement in REQUIREMENTS if requirement.id != "session-outlives-idleness")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.name} ({mutant.caught_by})")
def test_a_fault_is_caught_by_its_requirement(mutant: Mutant) -> None:
    chosen = tuple(r for r in QUICK if r.id == mutant.caught_by or mutant.caught_by in OVER_ALL_ANSWERS)

    with standard_server(mutant) as base_url:
        report = asyncio.run(acheck_server(base_url, requirements=chosen))

    assert report[mutant.caught_by].verdict == mutant.verdict, report[mutant.caught_by].observed


def test_without_a_fault_the_same_requirements_pass() -> None:
    with standard_server() as base_url:
        report = asyncio.run(acheck_server(base_url, requirements=QUICK))

    assert {report[mutant.caught_by].verdict for mutant in MUTANTS} == {"pass"}
