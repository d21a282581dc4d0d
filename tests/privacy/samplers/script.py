"""A script in the place of a random stream: what a sampler draws is written beforehand."""

import numpy as np
from numpy.typing import NDArray


class Script:
    """Stands in for a stream and hands out prepared words."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count, "more words were drawn than expected"
        return np.array(taken, dtype=np.uint64)
