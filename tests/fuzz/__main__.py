"""Coverage-guided fuzzing of one target, from the repository's root, in an environment that also has atheris:

    python -m tests.fuzz image --runs 1000000 --work /tmp/fuzz

Goes on from the committed corpus, keeps what reaches new code in ``--work``, and stops at the first finding (an input
``crash-...`` there; replay it with ``--replay FILE``). ``--pack`` then leaves the smallest of them in
``tests/fuzz/corpus``, where `test_fuzz.py` replays them.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MOST_MEMORY = 1 << 30  # bytes of address space beyond what everything imported takes
LARGEST_CORPUS = 256 << 10  # bytes of a packed corpus
sys.path[:0] = [str(HERE), str(HERE.parent / "learning")]


def unpacked(name: str, folder: Path) -> Path:
    """The committed corpus and the sound files, as a folder for the fuzzer."""
    from targets import TARGETS

    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(TARGETS[name].seeds()):
        (folder / f"seed-{number}").write_bytes(data)
    if (CORPUS / f"{name}.zip").is_file():
        zipfile.ZipFile(CORPUS / f"{name}.zip").extractall(folder)
    return folder


def pack(name: str, folder: Path) -> None:
    """Keep the smallest inputs, within a bound on the whole. Dates and order are fixed, so that equal is equal."""
    CORPUS.mkdir(exist_ok=True)
    target = CORPUS / f"{name}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.iterdir(), key=lambda file: (file.stat().st_size, file.name)):
            packed.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_DEFLATED)
            if target.stat().st_size > LARGEST_CORPUS:
                break
    print(f"{target}: {len(zipfile.ZipFile(target).namelist())} inputs, {target.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs to try")
    parser.add_argument("--work", type=Path, default=Path("fuzz-work"), help="folder of inputs and findings")
    parser.add_argument("--pack", action="store_true", help="make the committed corpus of what was found")
    parser.add_argument("--replay", type=Path, help="read one file and stop")
    given = parser.parse_args()
    work = given.work / given.target
    if given.pack:
        pack(given.target, work / "corpus")
        return

    import atheris

    with atheris.instrument_imports(include=["remix", "PIL"], enable_loader_override=False):
        from targets import TARGETS

        from remix.data import decode
    decode.MAX_PIXELS = 1 << 16  # reading is to take the time, not decoding
    target = TARGETS[given.target]
    if given.replay:
        target.read(given.replay.read_bytes())
        return
    corpus = unpacked(given.target, work / "corpus")
    options = [f"-max_len={target.longest}", f"-artifact_prefix={work}/", "-rss_limit_mb=0", "-timeout=20"]
    most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))  # more is a MemoryError, as in the child process
    arguments = ["fuzz", *options, f"-runs={given.runs}", "-print_final_stats=1", str(corpus)]
    sound = target.seeds()

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if target.mutate is None or draw.random() < 0.3:
            return atheris.Mutate(data, longest)
        return target.mutate(data, draw.choice(sound), draw)[:longest]

    more = {} if target.mutate is None else {"custom_mutator": mutate}
    atheris.Setup(arguments, target.read, **more)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
