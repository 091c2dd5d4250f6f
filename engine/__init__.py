"""The engine: what a tensor is, how it is laid out, and how one op runs on it.

Read in this order: `sbp`, `placement`, `meta` (layouts), `tensor` (shards and meta), `signature`
(the rule language), `op` (the base class of operations), `signature_choice` (the cheapest layouts
for one call), `dispatch_plan` (what is decided once), `dispatcher` (finds the plan, boxes
the inputs and runs it), `entry` (the source of the functions that do so),
`boxing` (changes of layout), `autograd_tape` and `autograd` (gradients), `views`, `view_writes` and
`inplace` (what a write changes), `convert` (to_global and to_local), then `ops/` (one file per
family of ops). The modules outside of `ops/` know no op.
docs/architecture.md follows one product through them.
"""
