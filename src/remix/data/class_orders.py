"""The order in which classes arrive: published lists, the data set's own order, or a seeded shuffle."""

from __future__ import annotations

import re

import numpy as np

from remix.data.errors import DataError

__all__ = ["ORDERS", "class_order"]

_A = """
23 8 11 7 48 13 1 91 94 54 16 63 52 41 80 2 47 87 78 66 19 6 24 10 59 30 22 29 83 37 93 81 43 99 86 28 34 88 44 14 84
70 4 20 15 21 31 76 57 67 73 50 69 25 98 46 96 0 72 35 58 92 3 95 56 90 26 40 55 89 75 71 60 42 9 82 39 18 77 68 32 79
12 85 36 17 64 27 74 45 61 38 51 62 65 33 5 53 97 49
"""
_B = """
131 181 22 172 144 92 97 187 58 93 6 70 106 68 153 168 179 199 29 46 9 142 134 88 193 110 26 32 117 112 17 39 166 13
94 138 109 147 51 101 59 188 116 5 170 99 100 167 180 146 65 1 104 43 38 184 123 171 137 162 71 44 95 174 12 7 54 152
21 47 28 176 34 2 132 118 42 189 150 14 165 41 192 45 82 128 63 57 197 160 53 75 108 135 121 159 183 67 169 50 87 69
89 196 115 19 148 96 86 11 8 60 33 173 78 4 119 105 182 127 177 30 186 40 49 178 76 157 161 73 164 151 31 74 191 27
125 198 81 20 155 114 139 36 61 56 145 48 16 83 62 85 126 0 102 23 3 140 15 195 133 113 190 141 52 163 156 80 111 90
175 143 120 84 18 25 79 37 154 136 64 158 24 185 72 35 129 55 149 91 122 77 103 124 130 66 10 107 194 98
"""

ORDERS: dict[str, tuple[int, ...]] = {
    "A": tuple(map(int, _A.split())),
    "B": tuple(map(int, _B.split())),
    "C": tuple(np.random.RandomState(1993).permutation(100).tolist()),
    "D": tuple(np.random.RandomState(1993).permutation(200).tolist()),
}
"""A: CIFAR-100 and B: Tiny-ImageNet-200 (lines of wnids.txt), as published with R-DFCIL and used for ResNets;
C: CIFAR-100 and D: CUB-200, as used for CLIP. The entry at position k is the label of the class that arrives k-th."""


def class_order(name: str, count: int) -> tuple[int, ...]:
    """Labels of ``count`` classes in the order in which they arrive.

    Args:
        name: "A", "B", "C" or "D" (see :data:`ORDERS`), "natural", or "seed:N" for a shuffle
            (numpy's legacy permutation, which is how C and D were made, with N = 1993).
        count: number of classes of the data set.

    Raises:
        DataError: for an unknown name, or a list that is for another number of classes.

    """
    if name == "natural":
        return tuple(range(count))
    if seeded := re.fullmatch(r"seed:(\d{1,9})", name):
        return tuple(np.random.RandomState(int(seeded[1])).permutation(count).tolist())
    if name not in ORDERS:
        raise DataError(f"no class order is called {name!r}; type one of {', '.join(ORDERS)}, natural, or seed:1993")
    if len(ORDERS[name]) != count:
        raise DataError(
            f"class order {name} is for {len(ORDERS[name])} classes and there are {count}; type natural or seed:1993"
        )
    return ORDERS[name]
