#!/usr/bin/env python3
"""Prints the windows that samples 995..1014 of 1000 windows are with seed 42 (tests/test_tokens.c).

A second writing of src/data/tokens.c: a Feistel network of 6 rounds, each adding (xor) a mix of the right half,
by Philox4x32-10 with key = seed, counter = (6 * right + round, 2^63 | epoch); values of W and more are walked over.
"""
M0, M1, W0, W1, LOW = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFFFFFF


def philox(c, k):
    c, k = list(c), list(k)
    for r in range(10):
        a, b = M0 * c[0], M1 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & LOW, (a >> 32) ^ c[3] ^ k[1], a & LOW]
        k = [(k[0] + W0) & LOW, (k[1] + W1) & LOW]
    return c


def window(seed, W, g):
    at, epoch = g % W, g // W
    half = ((W - 1).bit_length() + 1) // 2
    stream = 1 << 63 | epoch
    while True:
        left, right = at >> half, at & ((1 << half) - 1)
        for r in range(6):
            block = 6 * right + r
            word = philox([block & LOW, block >> 32, stream & LOW, stream >> 32], [seed & LOW, seed >> 32])
            left, right = right, left ^ ((word[0] | word[1] << 32) & ((1 << half) - 1))
        at = left << half | right
        if at < W:
            return at


print(", ".join(str(window(42, 1000, g)) for g in range(995, 1015)))
