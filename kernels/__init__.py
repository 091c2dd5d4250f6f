"""Pure functions on local torch tensors. They know nothing of Tensor, placement or sbp.

The torch references are in `*_ref.py`, the Triton kernels in `gpu/`, and `select` chooses between
them. `philox` generates counter-based random words, `random_transforms` turns them into numbers
with the same bits everywhere, and `random_ref` fills boxes of logical tensors with these.
"""
