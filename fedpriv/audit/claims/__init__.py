"""Claims: other people's settings in, what they truly guarantee out, with the reason.

`reading` has the kinds of claim and reads one; each kind knows how its system works, as its source
says in the version that is named, and what our own accountants prove of that. `verdict` is the
answer. Start with `gaussian`, which the others rest on. Pure: nothing is run, read or released.
"""

from fedpriv.audit.claims.reading import KINDS, claim_from_dict
from fedpriv.audit.claims.verdict import Claim, Outcome, Verdict

__all__ = ["KINDS", "Claim", "Outcome", "Verdict", "claim_from_dict"]
