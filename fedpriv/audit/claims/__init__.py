"""Claims: what the settings of other people's systems truly guarantee, and why.

`reading` has the kinds of claim and reads one. Each kind knows how its system works, according to
its source in the version that is named, and what our own accountants prove about it. `verdict` is
the answer. Start with `gaussian`, on which the others rest. Pure: nothing is run, read or released.
"""

from fedpriv.audit.claims.reading import KINDS, claim_from_dict
from fedpriv.audit.claims.verdict import Claim, Outcome, Verdict

__all__ = ["KINDS", "Claim", "Outcome", "Verdict", "claim_from_dict"]
