"""Stages: a program cut into a pipeline's stages, planned for every rank, and executed.

- `declare`: what the user said; `assign`: the stage of every step
- `cut`: the program in segments, and the transfers between them
- `plan`: every rank's instructions, in one global order; `rendezvous`: the proof that they end
- `executor`: runs them, for all ranks or for one
"""
