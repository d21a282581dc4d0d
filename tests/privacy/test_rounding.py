import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.rounding import rounded_down, rounded_up


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.1 + 0.2, 4, "0.3"),
        (1.23401, 4, "1.235"),
        (9.99951, 4, "10"),
        (1e-9, 4, "1e-09"),
        (123456, 4, "1.235e+05"),
        (0, 4, "0"),
        (float("inf"), 4, "inf"),
    ],
)
def test_rounding_is_upwards(value: float, digits: int, text: str) -> None:
    assert rounded_up(value, digits) == text


@given(value=st.floats(1e-200, 1e200), digits=st.integers(2, 9))
def test_what_is_printed_is_never_below_and_within_one_digit(value: float, digits: int) -> None:
    printed = float(rounded_up(value, digits))
    assert value * (1 - 2e-9) <= printed <= value * (1 + 10.0 ** (1 - digits) * (1 + 1e-6) + 2e-9)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.1 + 0.2, 4, "0.3"), (0.12369, 3, "0.123"), (9.99951, 4, "9.999"), (0, 3, "0")],
)
def test_what_was_found_at_least_is_rounded_downwards(value: float, digits: int, text: str) -> None:
    assert rounded_down(value, digits) == text
