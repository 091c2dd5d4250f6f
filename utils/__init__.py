"""Utilities beside the engine, each imported by its own name (`onefold.utils.dtensor`)."""
