from fakes.torch_runs import DEFAULT, SUBJECT, run

from engine_images.torch_compile.compare import rows
from engine_images.torch_compile.model import Compiled, Subject, Trial


def test_every_shape_has_each_process_beside_eager() -> None:
    compiled = Compiled(options=DEFAULT, cold=run(speedup=1.5), cached=run(speedup=2.0))
    found = rows(Trial(subject=SUBJECT, eager=run(), compiled=(compiled,)))
    assert [(row.shape, row.how, row.speedup) for row in found] == [
        ("1x64", "eager", None),
        ("1x64", "default, cold", 1.5),
        ("1x64", "default, saved cache", 2.0),
        ("8x128", "eager", None),
        ("8x128", "default, cold", 1.5),
        ("8x128", "default, saved cache", 2.0),
    ]


def test_shapes_of_batch_and_length_are_counted_in_tokens() -> None:
    found = rows(Trial(subject=SUBJECT, eager=run(per_second=100), compiled=()))
    assert [(row.per_second, row.unit) for row in found] == [(6400, "tokens"), (25600, "tokens")]


def test_other_shapes_are_counted_in_samples() -> None:
    subject = Subject(factory="f.py:f", shapes=((1, 3, 224, 224), (8, 3, 224, 224)))
    assert {row.unit for row in rows(Trial(subject=subject, eager=run(), compiled=()))} == {"samples"}
