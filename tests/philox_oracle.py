"""Random words as the paper on Philox defines them, one at a time: what the tests compare with."""

SEED, CALL = 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210
_LOW32 = 2**32 - 1


def philox_oracle(counter, key):
    """Philox4x32-10 from its paper, one word at a time."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & _LOW32, p0 >> 32 ^ c3 ^ k1, p0 & _LOW32
        k0, k1 = k0 + 0x9E3779B9 & _LOW32, k1 + 0xBB67AE85 & _LOW32
    return c0, c1, c2, c3


def halves(number):
    return number & _LOW32, number >> 32 & _LOW32


def word_oracle(index, seed=SEED, call=CALL):
    return philox_oracle((*halves(index >> 2), *halves(call)), halves(seed))[index & 3]


def wide_oracle(index, seed=SEED, call=CALL):
    return word_oracle(2 * index, seed, call) | word_oracle(2 * index + 1, seed, call) << 32
