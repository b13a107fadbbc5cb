"""The only thing pyproject.toml cannot say: build the native kernels, and go on without them if that fails."""

import os
from glob import glob

from setuptools import Extension, setup

FOLDER = "src/remix/laplace/native"

# No -march=native (the file may travel) and no -ffast-math (NaN and Inf must survive). The kernels pick their
# instruction set at run time. `optional`: without a working compiler the torch path serves and `remix doctor` says so.
native = Extension(
    "remix.laplace._native",
    sources=sorted(glob(f"{FOLDER}/*.cpp")),
    depends=sorted(glob(f"{FOLDER}/*.h")),
    include_dirs=[FOLDER],
    language="c++",
    extra_compile_args=[
        "-std=c++17",
        "-O3",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
        "-Wno-psabi",
    ],
    extra_link_args=["-pthread"],
    optional=True,
)

setup(ext_modules=[] if os.name == "nt" or os.environ.get("REMIX_NO_NATIVE") else [native])
