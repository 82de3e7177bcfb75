"""A region's traffic as paths, and in words."""

from __future__ import annotations

from fakes.delivery.records import REGIONS, Delivery, delivered
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.state import state_of
from pipelines.views.page.render import HEIGHT, WIDTH, Chart, chart


def chart_of(*weights: tuple[float, int, int]) -> Chart:
    """Weight and mirror after so many seconds each; known of until the last of them, and 10 s more."""
    step = f"canary@{REGIONS[0]}/25"
    delivery = Delivery("3", champion="2").open().say(step, "started")
    for after, weight, mirror in weights:
        delivery.say(step, "traffic", after=after, region=REGIONS[0], weight=weight, mirror=mirror)
    story = state_of(delivery.say(step, "done", after=10).events)
    return chart(story.regions[0], story)


def test_weights_are_steps_and_hold_until_the_next() -> None:
    drawn = chart_of((10, 25, 0), (20, 50, 0))
    assert drawn.users == "M0 100H250.0V75H750.0V50H1000"
    assert drawn.below == "M0 100H250.0V75H750.0V50H1000V100H0Z"
    assert drawn.took == "0:40"
    assert drawn.label == "Users of eu-west-1 on version 3: 25% from 0:10, 50% from 0:30"


def test_a_mirror_is_drawn_only_while_there_is_one() -> None:
    drawn = chart_of((10, 0, 100), (20, 5, 0))
    assert drawn.mirrored == "M250.0 0H750.0"
    assert "0% and 100% mirrored from 0:10" in drawn.label
    assert chart_of((10, 25, 0)).mirrored == ""


def test_a_region_that_nobody_was_moved_in_is_a_line_at_the_bottom() -> None:
    assert chart_of().users == f"M0 {HEIGHT}H{WIDTH}"
    assert chart_of().label.endswith(": none")


def test_one_that_was_promoted_ends_at_the_top() -> None:
    story = state_of(delivered())
    assert chart(story.regions[0], story).users.endswith("V0H1000")


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 100), st.integers(0, 100)), max_size=9))
def test_it_never_leaves_its_frame(weights: list[tuple[float, int, int]]) -> None:
    drawn = chart_of(*weights)
    numbers = [float(each) for each in drawn.users.replace("M", " ").replace("H", " ").replace("V", " ").split()]
    assert all(0 <= each <= WIDTH for each in numbers)
