"""What is said of Flower is true of the Flower that is installed."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import numpy as np
import pytest
from flwr.clientapp.mod.localdp_mod import LocalDpMod
from flwr.serverapp.strategy import dp_adaptive_clipping, dp_fixed_clipping, strategy_utils
from flwr.supercore import differential_privacy as of_flower

from fedpriv.audit.claims.flower import READ, FlowerAdaptive

ADAPTIVE = {
    "noise_multiplier": 1.3,
    "sampled_clients": 40,
    "rounds": 5,
    "delta": 1e-5,
    "adjacency": "zero-out",
}


def test_the_version_that_was_read_is_the_one_that_is_tested_with() -> None:
    assert f"flwr {version('flwr')}" == READ


def test_the_noise_of_an_average_is_made_for_the_planned_clients() -> None:
    assert of_flower.compute_stdv(1.3, 0.5, 20) == pytest.approx(1.3 * 0.5 / 20)
    added = inspect.getsource(
        dp_fixed_clipping.DifferentialPrivacyFixedClippingBase._add_noise_to_aggregated_arrays
    )
    assert "self.num_sampled_clients" in added
    assert "weight_factors = [w / total_weight" in inspect.getsource(
        strategy_utils.aggregate_arrayrecords
    )


def test_the_noise_is_split_as_if_a_count_moved_by_one_half() -> None:
    claim = FlowerAdaptive(**ADAPTIVE)  # type: ignore[arg-type]
    counted, update = of_flower.compute_adaptive_noise_params(1.3, 40, None)
    assert counted == claim.counted
    assert update == pytest.approx(claim.update_noise)
    assert update**-2 + (2 * counted) ** -2 == pytest.approx(1.3**-2)
    own = dp_adaptive_clipping.DifferentialPrivacyAdaptiveBase._noisy_fraction
    assert "np.random.normal(count, self.clipped_count_stddev)" in inspect.getsource(own)


@pytest.mark.parametrize(
    ("side", "moves"),
    [("Server", "self._geometric_update("), ("Client", "self._update_clip_norm_from_replies(")],
)
def test_the_clip_norm_moves_before_the_noise_is_drawn(side: str, moves: str) -> None:
    kind = getattr(dp_adaptive_clipping, f"DifferentialPrivacy{side}SideAdaptiveClipping")
    source = inspect.getsource(kind.aggregate_train)
    assert source.index(moves) < source.index("self._add_noise_to_aggregated_arrays(")
    drawn = inspect.getsource(kind._add_noise_to_aggregated_arrays)
    assert "self.clipping_norm" in drawn


def test_the_norm_shrinks_by_as_much_as_is_said() -> None:
    claim = FlowerAdaptive(**ADAPTIVE)  # type: ignore[arg-type]
    base = dp_adaptive_clipping.DifferentialPrivacyServerSideAdaptiveClipping(
        object(),  # type: ignore[arg-type]
        noise_multiplier=1.3,
        num_sampled_clients=40,
    )
    before = base.clipping_norm
    base._geometric_update(claim.highest_fraction)
    wanted = np.exp(-claim.clip_norm_lr * (claim.highest_fraction - claim.target_quantile))
    assert base.clipping_norm / before == pytest.approx(wanted)


def test_nan_passes_the_clipping_and_zero_is_divided_by() -> None:
    update = [np.array([np.nan, 1e6])]
    of_flower.compute_clip_model_update(update, [np.zeros(2)], 1.0)
    assert np.isnan(update[0][0])
    assert update[0][1] == 1e6  # not clipped either
    with pytest.raises(ZeroDivisionError):
        of_flower.compute_clip_model_update([np.ones(2)], [np.ones(2)], 1.0)


def test_the_noise_is_of_numpys_global_generator() -> None:
    drawn = []
    state = np.random.get_state()  # noqa: NPY002
    try:
        for _ in range(2):
            np.random.seed(7)  # noqa: NPY002
            arrays = [np.zeros(3)]
            of_flower.add_gaussian_noise_inplace(arrays, 1.0)
            drawn.append(arrays[0])
    finally:
        np.random.set_state(state)  # noqa: NPY002
    assert (drawn[0] == drawn[1]).all()


def test_local_noise_is_the_classical_formula_for_the_sensitivity_that_is_given() -> None:
    source = " ".join(inspect.getsource(LocalDpMod.__call__).split())
    assert "self.sensitivity * np.sqrt(2 * np.log(1.25 / self.delta)) / self.epsilon" in source
