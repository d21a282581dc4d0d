"""Release rules: what may be released, decided by experiment and schema before a record is read.

Whether a release happens is part of what an observer sees. So everything that could refuse one is
refused here, from public facts; what only the records can decide must not be able to refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpriv.data import read_schema
from fedpriv.data.partition import BY_RECORD
from fedpriv.data.tables.release_rules import require_releasable as require_releasable_schema
from fedpriv.simulations.experiment.budgets import NO_RELEASE
from fedpriv.simulations.experiment.catalogue import INFERENCE, strategy_info
from fedpriv.simulations.experiment.named_files.guests import is_guest

if TYPE_CHECKING:
    from fedpriv.data import Task
    from fedpriv.learning.losses import Loss
    from fedpriv.simulations.experiment.file import Experiment

_LABELS = 2001  # that are tried of a regression, both ends and the middle among them


def require_releasable(experiment: Experiment) -> None:
    """Refuse to publish what has no guarantee, or what depends on records beside its noise."""
    info = strategy_info(experiment.strategy.name, experiment.guests)
    if not info.private:
        raise ValueError(
            f"--release needs a strategy with a guarantee, and {info.name!r} adds no noise: its "
            "model may reveal any record."
        )
    if experiment.privacy.noise_free:
        raise ValueError(NO_RELEASE)
    if experiment.run.training_metrics:
        raise ValueError(
            "--release computes no run.training_metrics: the training objective is a function of "
            "private records that nobody pays for. Leave it out, or simulate."
        )
    if info.name == INFERENCE and experiment.data.scaling != "divide":
        raise ValueError(
            "--release of inference needs data.scaling = 'divide', got "
            f"{experiment.data.scaling!r}: a row that is shortened by a factor of its own has no "
            "coefficients in the units of the table. `fedpriv fit` sets it."
        )
    if experiment.run.engine == "deployment":  # its parties have rules, journals, keys of their own
        return
    if info.noise_by != "server":
        raise ValueError(
            f"--release needs noise that the server adds, and in {info.name!r} parties add their "
            "own: a round that is asked again after a crash would show a second draw. Simulate "
            "it, or release with its aggregated twin."
        )
    _require_one_place(experiment)
    _require_public_facts(experiment)


def _require_one_place(experiment: Experiment) -> None:
    """Refuse engines that simulate parties: in a release, one process holds all records."""
    run = experiment.run
    if run.engine == "sharded":
        raise ValueError(
            "--release needs engine = 'vectorized', got 'sharded': there exact sums, and who is in "
            "a sample, cross from process to process before any noise is on them, and Ray neither "
            "signs nor encrypts that. 'vectorized' has the same model, to the bit."
        )
    if run.engine != "vectorized" or run.dropout:
        raise ValueError(
            f"--release needs engine = 'vectorized' and no drop-outs, got engine = {run.engine!r} "
            f"and dropout = {run.dropout:g}: the other engines simulate parties, with keys that "
            "follow from the seed."
        )
    if run.device != "cpu":
        raise ValueError(
            f"--release needs run.device = 'cpu', got {run.device!r}: how an accelerator rounds, "
            "and whether one record can change the last digits of another, was not examined."
        )
    if experiment.privacy.noise_at == "parties":
        raise ValueError(
            "--release needs privacy.noise_at = 'server': here one process holds all records and "
            "sees every sum. Noise at the parties is for deployments and simulations."
        )


def _require_public_facts(experiment: Experiment) -> None:
    """Refuse data whose counts, parties or test records depend on more than one record."""
    data, privacy = experiment.data, experiment.privacy
    replaced = privacy.adjacency == "replace-one"
    if is_guest("data", data.name):
        raise ValueError(
            f"--release takes no records from a function, got data.name = {data.title!r}: scale, "
            "classes and parties may follow from the records there. Write the records to a table, "
            "and their public bounds to a schema: data.path and data.schema."
        )
    if data.store is not None:
        raise ValueError(
            f"--release reads the table itself, got the store {data.store!r}: a ledger is bound to "
            "the bytes of the table, and a copy that was prepared earlier, by whatever rules there "
            "were then, is not. Name the table and its schema: data.path and data.schema."
        )
    if data.partition not in BY_RECORD:
        raise ValueError(
            f"--release needs data.partition = 'natural' or 'hashed', got {data.partition!r}: it "
            "deals records out by their places, so that one record more or less moves others to "
            "other parties, and all their answers with them."
        )
    # What a person moves is counted at twice as many parties under replace-one: see
    # `fedpriv.federation.queries.bounds.gradient_sensitivity`.
    one_answer = replaced and privacy.unit != "person"
    if data.partition == "hashed" and data.parties != 1 and one_answer:
        raise ValueError(
            "--release with data.partition = 'hashed' needs one party under replace-one "
            f"adjacency, got data.parties = {data.parties}: an exchanged record may be another "
            "party's, and two answers change where the noise is for one. Set data.parties = 1, or "
            "use add-remove."
        )
    if data.partition == "hashed" and privacy.unit == "party":
        raise ValueError(
            "--release with privacy.unit = 'party' needs data.partition = 'natural', got 'hashed': "
            "parties that a hash makes of one table are nobody's, and if all records of one leave, "
            "copies of them are dealt out anew. Name the column of the parties in the schema."
        )
    if data.min_records is not None:
        raise ValueError(
            f"--release needs no data.min_records, got {data.min_records}: whether a party has so "
            "many records would show in whether there is a release."
        )
    if not privacy.sizes_public and data.records is None:
        raise ValueError(
            f"--release for privacy.unit = {privacy.unit!r} under {privacy.adjacency} adjacency "
            "needs data.records, a public number that stands for the true one, which is private: "
            "the size of the population, of the study as planned, or a round number near it."
        )
    if data.path is not None:
        if experiment.model.name == "squared" and experiment.model.label_bound < 1:
            raise ValueError(
                "--release with model.name = 'squared' needs model.label_bound of at least 1, got "
                f"{experiment.model.label_bound:g}: labels lie in [-1, 1] by the schema, and "
                "whether one is beyond a smaller bound would show in whether there is a release."
            )
        schema = read_schema(str(data.schema_path))
        require_releasable_schema(schema, deployed=False)
        if privacy.unit == "person" and schema.person is None:
            raise ValueError(
                "--release with privacy.unit = 'person' needs a schema that says whose records are "
                "whose: name the column, as in person = 'patient'."
            )


def require_every_label(loss: Loss, task: Task) -> None:
    """Refuse a loss that refuses a label which the schema of a table admits.

    The loss checks labels when a sum is formed, after the release is paid for: one record would
    then decide whether there is a release. A user's own loss may have any rule, so all possible
    labels are tried; for a regression, whose labels lie in [-1, 1], a grid of them.
    """
    labels = {
        "binary": torch.tensor([-1.0, 1.0]),
        "multiclass": torch.arange(loss.outputs),
        "regression": torch.linspace(-1, 1, _LABELS),
    }[task]
    try:
        loss.check_labels(labels)
    except (ValueError, AssertionError) as error:
        raise ValueError(
            f"--release needs a loss that takes every label of the schema, and "
            f"{type(loss).__name__} takes not all of them ({error}): whether a record has another "
            "one would show in whether there is a release. A number is scaled to [-1, 1]: let "
            "check_labels admit all of that."
        ) from None
