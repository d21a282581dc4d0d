"""Coverage-guided fuzzing of one reader, by atheris: `python -m tests.fuzz.driver csv FOLDER 60`.

Bytes that reach new lines of fedpriv are kept in FOLDER/corpus and changed further, for so many
seconds. Whatever a reader may not raise ends the process with a status that is not 0, as a hang
does, and its bytes are left in FOLDER/finding-….
"""

from __future__ import annotations

import sys
from pathlib import Path

_LONGEST = 60  # seconds for one reading
_MEMORY = 3072  # MiB
_BYTES = 1 << 16


def main(name: str, folder: Path, seconds: int) -> None:
    """Fuzz until the time is over; libFuzzer then ends the process."""
    import atheris

    with atheris.instrument_imports(include=["fedpriv"], enable_loader_override=False):
        from tests.fuzz.readers import READERS

    reader = READERS[name]
    corpus, place = folder / "corpus", folder / "place"
    for each in (corpus, place):
        each.mkdir(parents=True, exist_ok=True)
    seeds = [*reader.seeds, *map(reader.written, reader.values)]
    for number, seed in enumerate(seeds):
        if seed is not None:
            (corpus / f"seed-{number}").write_bytes(seed)

    def attempt(data: bytes) -> None:
        reader.attempt(data, place)

    options = (
        f"-max_total_time={seconds}",
        f"-timeout={_LONGEST}",
        f"-rss_limit_mb={_MEMORY}",
        f"-max_len={_BYTES}",
        f"-artifact_prefix={folder}/finding-",
        "-verbosity=0",
        "-print_final_stats=1",
    )
    atheris.Setup([sys.argv[0], *options, str(corpus)], attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
