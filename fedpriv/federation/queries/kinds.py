"""Kinds of query that a server may put to the parties, by the name that travels on the wire."""

from fedpriv.federation.queries.accuracy import AccuracyQuery
from fedpriv.federation.queries.base import Query
from fedpriv.federation.queries.erm import ErmQuery
from fedpriv.federation.queries.gradient import GradientQuery
from fedpriv.federation.queries.hessian import HessianQuery
from fedpriv.federation.queries.local_training import LocalTrainingQuery
from fedpriv.federation.queries.loss import LossQuery
from fedpriv.federation.queries.moments import MomentsQuery
from fedpriv.federation.queries.risk_gradient import RiskGradientQuery
from fedpriv.federation.queries.statistics import StatisticsQuery

__all__ = [
    "QUERIES",
    "AccuracyQuery",
    "ErmQuery",
    "GradientQuery",
    "HessianQuery",
    "LocalTrainingQuery",
    "LossQuery",
    "MomentsQuery",
    "Query",
    "RiskGradientQuery",
    "StatisticsQuery",
]

QUERIES: dict[str, type[Query]] = {
    query.kind: query
    for query in (
        GradientQuery,
        ErmQuery,
        RiskGradientQuery,
        LossQuery,
        AccuracyQuery,
        LocalTrainingQuery,
        MomentsQuery,
        HessianQuery,
        StatisticsQuery,
    )
}
