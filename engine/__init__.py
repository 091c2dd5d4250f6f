"""The engine: what a tensor is, how it is laid out, and how one op runs on it.

Read in this order: `sbp`, `placement`, `meta` (what a layout is), `tensor` (shards + meta),
`signature` (the rule language), `op` (the one place to add an operation), `choice` (the cheapest
layouts for one call), `plan` (what was decided, made once), `dispatch` (finds the plan, boxes the
inputs and runs it), `entry` (the source of the functions that do so), `boxing` (changing a layout),
`tape` and `autograd` (gradients), `convert` (to_global and its kin), then `ops/` (the knowledge:
one file per op family; the mechanism knows none of them).
"""
