"""Writes a checkpoint: each rank its own pieces into common files, then rank 0 the manifest.

A checkpoint is written under a temporary name and renamed when it is complete. Ranks synchronize
through files, so a checkpoint can be written while a training step communicates.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..engine.convert import box as boxed
from ..engine.meta import Box, Meta
from ..engine.sbp import without_partial
from ..engine.tensor import Tensor
from ..errors import CheckpointError
from .manifest import (
    FILE,
    Manifest,
    Section,
    StoredFile,
    StoredTensor,
    index_name,
    index_text,
    is_complete,
    numbered,
)
from .pieces import Piece, pieces_of, within
from .safetensors_format import Header, bytes_of, make_header, opened, stored, write_at, write_box
from .value_tree import Description, Leaf

_GLANCE = 0.01  # seconds between two looks for another rank's report


class Work(NamedTuple):
    """A piece that this process writes or, without a file, only checks by its checksum."""

    file: str
    section: str
    name: str
    number: int
    box: Box
    value: torch.Tensor
    foreign: bool = False  # memory of arrays, which the program may change at any time

    @property
    def key(self) -> tuple[str, str, int]:
        return self.section, self.name, self.number


Sums = dict[tuple[str, str, int], int]  # the checksums of pieces


@dataclass
class Layout:
    """What all ranks write, which is the same on each, and the part that this rank writes."""

    manifest: Manifest
    files: dict[str, tuple[str, dict[str, Meta]]] = field(default_factory=dict)  # section, tensors
    works: list[Work] = field(default_factory=list)

    def describe(self) -> dict[str, tuple[Header, bytes]]:
        """Fill the manifest, without checksums of pieces; the headers of files, and their bytes.

        This takes a while with many tensors, and may be done while training goes on.
        """
        headers = {}
        for file, (section, metas) in self.files.items():
            forms = {name: (meta.dtype, tuple(meta.shape)) for name, meta in metas.items()}
            header, head = headers[file] = make_header(forms, {"format": "pt"})
            self.manifest.files[file] = StoredFile(header.size, zlib.crc32(head))
            for name, meta in metas.items():
                self.manifest.sections[section].tensors[name] = StoredTensor(
                    file,
                    str(meta.dtype).removeprefix("torch."),
                    list(meta.shape),
                    [[*map(list, piece.box), 0] for piece in pieces_of(meta)],
                )
        return headers


def lay_out(
    step: int, sections: dict[str, Description], shard_bytes: int, rank: int | None
) -> Layout:
    """Files of at most `shard_bytes` (or one tensor) for the sections, in Hugging Face's names.

    Collective where a tensor is partial: it is reduced. `rank` is None in a virtual world.
    """
    layout = Layout(Manifest(step))
    for section, described in sections.items():
        layout.manifest.sections[section] = Section(described.tree)
        leaves = {name: _reduced(leaf) for name, leaf in described.tensors.items()}
        metas = {name: _stored_meta(leaf) for name, leaf in leaves.items()}
        groups = list(_grouped(metas, shard_bytes))
        for index, names in enumerate(groups, 1):
            file = f"{section}-{index:05d}-of-{len(groups):05d}.safetensors"
            layout.files[file] = section, {name: metas[name] for name in names}
            for name in names:
                meta = metas[name]
                for number, piece in enumerate(pieces_of(meta)):
                    value = _value(leaves[name], meta, piece)
                    if value is not None:
                        own = file if piece.owner is not None or not rank else ""
                        foreign = not isinstance(leaves[name], Tensor)
                        work = Work(own, section, name, number, piece.box, value, foreign)
                        layout.works.append(work)
    return layout


def _reduced(leaf: Leaf) -> Leaf:
    if isinstance(leaf, Tensor) and leaf.meta.partial:
        return boxed(leaf.detach(), leaf.meta.like(nd_sbp=without_partial(leaf.sbp)))
    return leaf


def _stored_meta(leaf: Leaf) -> Meta:
    if isinstance(leaf, np.ndarray):
        leaf = torch.as_tensor(leaf)
    dtype, shape = stored(leaf.dtype, leaf.shape)
    if isinstance(leaf, Tensor) and leaf.is_global:
        return Meta.of(shape, dtype, leaf.placement, leaf.sbp)
    return Meta.of(shape, dtype, device=torch.device("cpu"))


def _grouped(metas: dict[str, Meta], limit: int) -> Iterator[list[str]]:
    names: list[str] = []
    size = 0
    for name, meta in metas.items():
        if names and size + meta.nbytes > limit:
            yield names
            names, size = [], 0
        names.append(name)
        size += meta.nbytes
    if names:
        yield names


def _value(leaf: Leaf, meta: Meta, piece: Piece) -> torch.Tensor | None:
    """This process's part of a tensor that is a piece, as it stands in a file, if it has it."""
    outer: Box = ((0,) * meta.ndim, tuple(meta.shape))
    if not isinstance(leaf, Tensor):
        value = torch.as_tensor(leaf)
    elif meta.placement is None:
        value = leaf.shards[0]
    elif piece.holder not in meta.placement.owned:
        return None
    else:
        value = leaf.shards[meta.placement.owned.index(piece.holder)]
        outer = meta.box(piece.holder)
    value = value.detach()
    if value.dtype.is_complex and not meta.dtype.is_complex:
        value = torch.view_as_real(value.resolve_conj())
    return value[within(piece.box, outer)]


class Writer:
    """One process's work on a checkpoint; `run` does it, in any thread.

    `nonce` is the same word on all ranks. The names of unfinished checkpoints contain it. With
    `replaces` a folder that is there is removed when the new one is complete.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        nonce: str,
        ranks: int,
        rank: int,
        keep: int | None,
        timeout: float,
        replaces: bool = False,
    ) -> None:
        self.replaces = replaces
        self.layout = layout
        self.headers: dict[str, tuple[Header, bytes]] = {}
        self.folder = folder
        self.partial = folder.parent / f".{folder.name}.{nonce}.partial"
        self.ranks = ranks
        self.rank = rank
        self.keep = keep
        self.timeout = timeout

    def run(self) -> None:
        """Write this rank's part; returns when the checkpoint is complete.

        Raises CheckpointError where it does not become so, on every rank.
        """
        problem = ""
        sums: Sums = {}
        try:
            sums = self._write()
        except CheckpointError as error:
            problem = str(error)
        except OSError as error:
            problem = f"cannot write {error.filename or self.partial}: {error.strerror}"
        except Exception as error:  # noqa: BLE001 - the other ranks would wait for this one
            problem = f"{type(error).__name__}: {error}"
        if self.rank:
            self._report(sums, problem)
            self._wait_for_the_end(problem)
            return
        try:
            reports = {0: (sums, problem)}
            reports |= {rank: self._report_of(rank) for rank in range(1, self.ranks)}
            self._complete(reports)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.folder} was not completed: {error.strerror}"
            ) from error
        finally:
            shutil.rmtree(self.partial, ignore_errors=True)

    def _write(self) -> Sums:
        self.partial.mkdir(parents=True, exist_ok=True)
        sums: Sums = {}
        self.headers = self.layout.describe()
        if not self.rank:
            for name, (header, head) in self.headers.items():
                with opened(self.partial / name, os.O_RDWR | os.O_CREAT) as file:
                    os.ftruncate(file, header.size)
                    write_at(file, 0, head)
                    os.fsync(file)
        for name, works in groupby(self.layout.works, lambda work: work.file):
            if not name:
                sums |= {work.key: zlib.crc32(bytes_of(work.value.cpu())) for work in works}
                continue
            with opened(self.partial / name, os.O_RDWR | os.O_CREAT) as file:
                for work in works:
                    sums[work.key] = self._write_piece(file, work)
                os.fsync(file)
        return sums

    def _write_piece(self, file: int, work: Work) -> int:
        header = self.headers[work.file][0]
        try:
            return zlib.crc32(write_box(file, header, work.name, work.box, work.value.cpu()))
        except OSError as error:
            raise CheckpointError(
                f"cannot write {work.name!r} into {self.partial / work.file}: {error.strerror}"
            ) from error

    # How ranks meet.

    def _report_file(self, rank: int) -> Path:
        return self.partial / f"rank-{rank}.json"

    def _report(self, sums: Sums, problem: str) -> None:
        path = self._report_file(self.rank)
        report = {"problem": problem, "sums": [[*key, crc] for key, crc in sums.items()]}
        try:
            path.with_suffix(".new").write_text(json.dumps(report))
            os.replace(path.with_suffix(".new"), path)
        except OSError as error:  # rank 0 will miss it
            raise CheckpointError(f"cannot write {path}: {problem or error.strerror}") from error

    def _report_of(self, rank: int) -> tuple[Sums, str]:
        """Another rank's checksums and problem."""
        path = self._report_file(rank)
        end = time.monotonic() + self.timeout
        while not path.exists():
            if time.monotonic() > end:
                return {}, f"rank {rank} did not write its part within {self.timeout:g} s"
            time.sleep(_GLANCE)
        report = json.loads(path.read_text())
        sums = {(section, name, number): crc for section, name, number, crc in report["sums"]}
        path.unlink()
        return sums, report["problem"]

    def _wait_for_the_end(self, problem: str) -> None:
        """Wait until rank 0 has completed the checkpoint, or given it up."""
        end = time.monotonic() + self.timeout
        while self.partial.exists():
            if time.monotonic() > end:
                raise CheckpointError(
                    f"rank 0 did not complete {self.folder} within {self.timeout:g} s"
                )
            time.sleep(_GLANCE)
        if problem or not self.folder.exists():
            reason = problem or "rank 0 says why"
            raise CheckpointError(f"the checkpoint {self.folder} was not completed: {reason}")

    # The end, on rank 0.

    def _complete(self, reports: dict[int, tuple[Sums, str]]) -> None:
        sums = {rank: found for rank, (found, _) in reports.items()}
        problems = [
            f"on rank {rank}, {problem}" if self.ranks > 1 else problem
            for rank, (_, problem) in reports.items()
            if problem
        ]
        problems += self._differences(sums)
        if problems:
            raise CheckpointError(
                f"the checkpoint {self.folder} was not completed: {'; '.join(problems)}"
            )
        manifest = self.layout.manifest
        for each in reversed(sums.values()):  # of local tensors rank 0's are written
            for (key, name, number), crc in each.items():
                manifest.sections[key].tensors[name].pieces[number][2] = crc
        for name, section in manifest.sections.items():
            if section.tensors:
                files = {stored.file for stored in section.tensors.values()}
                data = sum(self.headers[file][0].size for file in files)
                heads = sum(self.headers[file][0].data for file in files)
                text = index_text(section.tensors, data - heads).encode()
                manifest.indexes[index_name(name)] = zlib.crc32(text)
                _write_file(self.partial / index_name(name), text)
        _write_file(self.partial / FILE, manifest.text().encode())
        _sync_folder(self.partial)
        gone = self.partial.with_suffix(".removed.partial")
        if self.replaces and self.folder.exists():
            os.rename(self.folder, gone)
        os.rename(self.partial, self.folder)
        _sync_folder(self.folder.parent)
        shutil.rmtree(gone, ignore_errors=True)
        if self.keep is not None:
            remove_old(self.folder.parent, self.keep)

    def _differences(self, sums: dict[int, Sums]) -> Iterator[str]:
        """Local tensors, which stand for one value, that differ between ranks."""
        for rank, each in sums.items():
            for key, crc in each.items():
                if rank and key in sums[0] and sums[0][key] != crc:
                    yield (
                        f"the local tensor {key[0]}: {key[1]!r} differs between ranks 0 and "
                        f"{rank}; make it global, or leave it out"
                    )
                    break


def _write_file(path: Path, data: bytes) -> None:
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
        write_at(file, 0, data)
        os.fsync(file)


def _sync_folder(path: Path) -> None:
    with opened(path, os.O_RDONLY) as file:
        os.fsync(file)


def remove_old(root: Path, keep: int) -> None:
    """Leave the newest `keep` complete checkpoints, and what is newer than those."""
    complete = [folder for folder in numbered(root).values() if is_complete(folder)]
    for folder in complete[:-keep]:
        gone = root / f".{folder.name}.removed.partial"
        os.rename(folder, gone)  # at no moment it is a checkpoint that lacks files
        shutil.rmtree(gone)


def remove_unfinished(root: Path) -> None:
    """Remove the files of saves that were killed."""
    for path in root.glob(".step-*.partial"):
        shutil.rmtree(path, ignore_errors=True)
