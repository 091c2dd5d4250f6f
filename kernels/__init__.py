"""Pure functions on local torch tensors; they know nothing of Tensor, placement or sbp.

`philox` makes counter-based random words, `elementary` turns them into numbers with the same bits
everywhere, `random` fills boxes of logical tensors with them.
"""
