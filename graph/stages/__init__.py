"""Stages: a program cut into a pipeline's stages, planned for every rank, and executed.

- `declared_stages`: what the user said; `assign_stages`: the stage of every step
- `partition`: the program in segments, and the transfers between them; `stage_copies`: the
  segments of copies to the host and back
- `stage_plan`: every rank's instructions, in one global order; `rendezvous`: the deadlock check
- `stage_executor`: runs them, for all ranks or for one
"""
