"""The native library: what serves when it fails, other instruction sets, and the threads that torch lends."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from dense_twin import draw

import remix
from remix.laplace import LaplaceCovariance, kernels
from remix.laplace.native_library import ABI, find_library, find_openmp

PACKAGE = Path(remix.__file__).parent


SUFFIXES = ("float", "double", "f32", "f64")  # of functions that exist for two dtypes


LIBRARY = find_library()


needs_library = pytest.mark.skipif(LIBRARY is None, reason="the native library was not built")


# In one fresh interpreter: imports the package, then forks once per case; what is loaded at first use differs.
SERVER = """
import json, os, shutil, sys, traceback
from pathlib import Path
import torch
import remix.laplace
from remix.laplace import kernels
torch.set_num_threads(1)
with kernels.use("torch"):  # what torch imports at the first use of an operator is imported once
    remix.laplace.LaplaceCovariance(*torch.ones(3, 5, requires_grad=True)).matvec(torch.ones(5))
cases, results = json.load(sys.stdin), []
target = Path(remix.laplace.__file__).parent / "_native_of_this_case.so"
for case in cases:
    if case["library"]:
        shutil.copy(case["library"], target)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1), os.dup2(write, 2)
        os.environ.update(case["environment"])
        try:
            exec(case["code"], {})
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as pipe:
        output = pipe.read()
    results.append([os.waitpid(child, 0)[1], output])
    target.unlink(missing_ok=True)
print(json.dumps(results))
"""


# Prints the path in use, the number of warnings, and whether a likelihood and its gradient are right.
LIKELIHOOD = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    from remix.laplace import LaplaceCovariance, LaplaceNormal, kernels, reference
    g = torch.Generator().manual_seed(0)
    d, w, a, x = (torch.randn(37, generator=g, dtype=torch.float64) for _ in range(4))
    d, x = d.exp(), x.expand(19, 37).clone().requires_grad_()
    for _ in range(3):
        normal = LaplaceNormal(torch.zeros_like(d), LaplaceCovariance(d, w, a))
        value = normal.log_prob(x)
    value.sum().backward()
dense = torch.distributions.MultivariateNormal(0 * d, reference.dense(d, w, a))
right = torch.allclose(value, dense.log_prob(x), rtol=1e-12)
right &= torch.allclose(x.grad, -torch.linalg.solve(reference.dense(d, w, a), x.mT).mT, rtol=1e-9)
ours = [str(c.message) for c in caught if "remix" in str(c.message)]
print(kernels.status().path, len(ours), "right" if right else "wrong", *ours)
"""


ASK_FOR_NATIVE = """
from remix.laplace import kernels
try:
    kernels.use("native").__enter__()
except ValueError as error:
    print("refused:", error)
"""


EVERY_OPERATION = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from dense_twin import *
from remix.laplace import kernels
for lead, dim in (((1,), 300), ((2,), 65), ((7,), 33), ((17,), 64), ((33,), 17)):
    for name in OPERATIONS:
        for dtype in TOLERANCE:
            inputs = [v.to(dtype) for v in draw(lead, dim)]
            assert_all_near(with_gradients(OPERATIONS[name], LaplaceCovariance, inputs), exact(name, lead, dim, ()))
print(kernels.status().path, kernels.status().isa)
"""


def compiled(code: str, target: Path) -> Path:
    source = target.with_suffix(".c")
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(target), str(source)], check=True)
    return target


def idle_library(abi: int) -> str:
    """C source with every symbol that is loaded; its kernels do nothing."""
    loader = (PACKAGE / "laplace/native_library.py").read_text()
    found = set(re.findall(r"remix_\w+", loader)) - {"remix_abi"}
    names = {name + end for name in found for end in (SUFFIXES if name.endswith("_") else ("",))}
    return f"int remix_abi() {{ return {abi}; }}\n" + "".join(f"int {n}() {{ return 0; }}\n" for n in sorted(names))


def broken_libraries(folder: Path) -> dict[str, Path | None]:
    folder.mkdir()
    files: dict[str, Path | None] = {"missing": None}

    def write(name: str, content: bytes) -> None:
        files[name] = folder / f"{name}.so"
        (folder / f"{name}.so").write_bytes(content)

    write("empty", b"")
    write("no library", b"something else")
    if LIBRARY:
        whole = LIBRARY.read_bytes()
        for percent in (0.2, 10, 90):
            write(f"{percent} percent", whole[: int(len(whole) * percent / 100)])
        other_machine = bytearray(whole)
        other_machine[18:20] = (183 if whole[18] != 183 else 62).to_bytes(2, "little")
        write("another machine", bytes(other_machine))
    if shutil.which("cc"):
        files["another library"] = compiled("int other;", folder / "other.so")
        files["another version"] = compiled(idle_library(ABI + 1), folder / "version.so")
        files["nonsense"] = compiled(idle_library(ABI), folder / "nonsense.so")
    return files


class Outcome(NamedTuple):
    """How a case ended: wait status (0 is well) and output."""

    status: int
    output: str


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    root = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, root / "remix", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    cases = {name: (file, {}, LIKELIHOOD) for name, file in broken_libraries(root / "libraries").items()}
    cases |= {
        "torch by choice": (None, {"REMIX_KERNELS": "torch"}, LIKELIHOOD),
        "native by wish": (None, {"REMIX_KERNELS": "native"}, LIKELIHOOD),
        "native by use": (None, {}, ASK_FOR_NATIVE),
    }
    if LIBRARY:
        cases["good"] = (LIBRARY, {}, LIKELIHOOD)
        cases |= {isa: (LIBRARY, {"REMIX_ISA": isa}, EVERY_OPERATION) for isa in ("generic", "avx2")}
    request = [
        {"library": str(file) if file else None, "environment": environment, "code": code}
        for file, environment, code in cases.values()
    ]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("REMIX_")}
    done = subprocess.run(
        [sys.executable, "-c", SERVER], input=json.dumps(request), env=clean | {"PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: Outcome(*one) for name, one in zip(cases, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize(
    ("breakage", "reason"),
    [
        ("missing", "not built"),
        ("empty", ""),
        ("no library", ""),
        ("0.2 percent", "damaged"),
        ("10 percent", "damaged"),
        ("90 percent", "damaged"),
        ("another machine", ""),
        ("another library", "not a REMIX"),
        ("another version", f"ABI {ABI + 1}"),
        ("nonsense", "self-test"),
        ("native by wish", "not built"),
    ],
)
def test_a_library_that_fails_gives_one_warning_and_right_numbers(
    breakage: str, reason: str, outcomes: dict[str, Outcome]
) -> None:
    if breakage not in outcomes:
        pytest.skip("needs a library to break, or a C compiler")
    status, output = outcomes[breakage]
    assert status == 0, output
    path, warned, right, *warning = output.split(maxsplit=3)
    assert (path, warned, right) == ("torch", "1", "right")
    assert reason in warning[0]
    assert "torch path" in warning[0]


def test_torch_by_choice_gives_no_warning(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["torch by choice"] == (0, "torch 0 right\n")


def test_native_kernels_that_do_not_exist_cannot_be_forced(outcomes: dict[str, Outcome]) -> None:
    assert "refused: path 'native'" in outcomes["native by use"].output
    assert "not built" in outcomes["native by use"].output


@needs_library
def test_a_good_library_serves(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["good"] == (0, "native 0 right\n")


@needs_library
@pytest.mark.parametrize("isa", ["generic", "avx2"])
def test_every_instruction_set_gives_right_numbers(isa: str, outcomes: dict[str, Outcome]) -> None:
    if isa == "avx2" and outcomes[isa].output == "native generic\n":
        pytest.skip("this CPU has no AVX2")
    assert outcomes[isa] == (0, f"native {isa}\n")


AFTER_FORK = """
import os, torch
from remix.laplace import LaplaceCovariance, kernels
torch.set_num_threads(2)
sigma = LaplaceCovariance(*torch.rand(3, 70000).add(0.1).unbind(), validate_args=False)
x = torch.randn(40, 70000)
wanted = sigma.solve(x)  # starts the threads
child = os.fork()
if not child:
    os._exit(0 if (sigma.solve(x).numpy() == wanted.numpy()).all() else 1)  # torch.equal would wait for its threads
print(kernels.status().threads, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@needs_library
def test_a_forked_child_computes_on_threads_of_its_own() -> None:
    """The pool that torch lends has no threads in a child: waiting for them would never end."""
    run = subprocess.run([sys.executable, "-c", AFTER_FORK], capture_output=True, text=True, timeout=600, check=False)
    assert run.stdout in ("torch 0\n", "own 0\n"), run.stderr


@needs_library
def test_torch_lends_its_threads_when_it_has_gnu_openmp() -> None:
    wanted = "own" if find_openmp() is None else "torch"
    library = kernels.native()
    assert library is not None
    assert library.threads == kernels.status().threads == wanted


@needs_library
@pytest.mark.parametrize("lent", [True, False])
def test_any_number_of_threads_gives_the_same_bits(lent: bool) -> None:
    inputs = draw((40,), 30_000)
    sigma = LaplaceCovariance(*inputs[2:])
    library, before = kernels.native(), torch.get_num_threads()
    assert library is not None
    if not lent:
        library.handle.remix_lend_threads(None)
    try:
        found = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(sigma.solve(inputs[0]))
    finally:
        torch.set_num_threads(before)
        if not lent:
            library._borrow_threads()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
