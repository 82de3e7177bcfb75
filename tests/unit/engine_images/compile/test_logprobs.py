import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_images.compile.logprobs import Scored, compare


def scored(prompt: list[float], answer: str = "", logprobs: list[float] | None = None) -> Scored:
    return Scored(prompt=tuple(prompt), answer=tuple(answer), logprobs=tuple(logprobs or [-1.0] * len(answer)))


def test_the_largest_difference_of_all_prompts_is_found() -> None:
    eager = [scored([-1.0, -2.0]), scored([-3.0])]
    compiled = [scored([-1.0, -2.5]), scored([-3.1])]

    agreement = compare(eager, compiled)

    assert agreement.largest == pytest.approx(0.5)
    assert (agreement.prompts, agreement.tokens) == (2, 3)
    assert not agreement.within(0.4)
    assert agreement.within(0.6)


def test_what_follows_the_first_other_token_says_nothing() -> None:
    """A near tie that fell the other way makes another text: its probabilities are of something else."""
    eager = [scored([-1.0], "abcd", [-1.0, -1.0, -0.7, -5.0])]
    compiled = [scored([-1.0], "abXd", [-1.0, -1.25, -0.69, -1.0])]

    agreement = compare(eager, compiled)

    assert agreement.tokens == 3
    assert agreement.largest == pytest.approx(0.25)
    assert agreement.answers_alike == 0


def test_one_wild_token_of_a_hundred_is_largest_but_not_p99() -> None:
    eager, compiled = [scored([0.0] * 100)], [scored([0.01] * 99 + [3.0])]

    agreement = compare(eager, compiled)

    assert agreement.largest == 3.0
    assert agreement.p99 == pytest.approx(0.01)


def test_engines_that_split_a_prompt_otherwise_are_not_the_same_model() -> None:
    with pytest.raises(ValueError, match="a prompt of 2 tokens has 1"):
        compare([scored([-1.0, -2.0])], [scored([-1.0])])


def test_nothing_compared_proves_nothing() -> None:
    with pytest.raises(ValueError, match="no token"):
        compare([scored([])], [scored([])])


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=30))
def test_an_engine_agrees_with_itself(values: list[float]) -> None:
    agreement = compare([scored(values, "ab")], [scored(values, "ab")])

    assert agreement.largest == agreement.p99 == 0
    assert agreement.answers_alike == 1


@given(st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0)), min_size=1, max_size=200))
def test_p99_never_exceeds_the_largest_and_is_one_of_the_differences(pairs: list[tuple[float, float]]) -> None:
    agreement = compare([scored([one for one, _ in pairs])], [scored([other for _, other in pairs])])

    differences = [abs(one - other) for one, other in pairs]
    assert agreement.p99 in differences
    assert agreement.p99 <= agreement.largest == max(differences)
    assert sum(difference <= agreement.p99 for difference in differences) >= 0.99 * len(pairs)
