"""Sources of measured kernels: a wheel, the folder it unpacks to, or one device's folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

from kvsim.device import named_device
from kvsim.plumbing.errors import InputError
from kvsim.step_time.kernels.columns import FORMATS, MEASURED
from kvsim.step_time.kernels.tables import SUFFIX

ENGINES = ("vllm", "sglang")
SYSTEMS = "systems/data/"  # of the wheel; below it DEVICE/FAMILY/ENGINE/VERSION/STEM.parquet
STEMS = {f"{measured.stem}{suffix}" for measured in MEASURED for suffix in FORMATS}
SUFFIXES = ("_sxm", "_server")  # of a device's folder, that the catalogue leaves out


class KernelSource(NamedTuple):
    """Folder of measured kernels of one device and one engine."""

    folder: Path
    device: str
    engine: str

    @property
    def file_name(self) -> str:
        """File name of the tables distilled from it."""
        return f"{self.device}-{self.engine}{SUFFIX}"


@contextmanager
def opened(source: Path) -> Iterator[Path]:
    """The folder of measurements: `source`, or a temporary one with those of a wheel."""
    if not source.exists():
        raise InputError("there is no such wheel or folder", where=str(source))
    if source.is_dir():
        yield source
        return
    with TemporaryDirectory(prefix="kvsim-kernels-") as scratch:
        try:
            with ZipFile(source) as wheel:
                members = [
                    name
                    for name in wheel.namelist()
                    if SYSTEMS in name and name.rpartition("/")[2] in STEMS
                ]
                wheel.extractall(scratch, members)
        except BadZipFile:
            raise InputError("neither a wheel nor a folder", where=str(source)) from None
        yield Path(scratch)


def sources(folder: Path, device: str | None) -> list[KernelSource]:
    """The sources of every engine and every known device below `folder`; device: its name if
    `folder` is one device's own, as in `[device]`.

    InputError where there is nothing.
    """
    if device is not None and Path(device).name != device:
        raise InputError("not the name of a device", where="--device", value=device)
    roots: dict[Path, set[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.name in STEMS and len(path.relative_to(folder).parts) > 3:
            root, engine = path.parents[3], path.parents[1].name
            if engine in ENGINES and path.parents[2].name != "comm":
                roots.setdefault(root, set()).add(engine)
    if device is not None and set(roots) - {folder}:
        raise InputError(
            "the wheel or folder holds several devices, by their own names",
            where="--device",
            value=device,
            remedy=f"give --only {device}",
        )
    found = []
    for root, engines in roots.items():
        name = _device(root.name) if device is None else _device(device) or device
        if name is not None:
            found += [KernelSource(root, name, engine) for engine in ENGINES if engine in engines]
    if not found:
        raise InputError(
            "no measured kernels of a device that kvsim knows",
            where=str(folder),
            limit="FAMILY/ENGINE/VERSION/STEM.parquet or .csv, ENGINE one of " + ", ".join(ENGINES),
            remedy="name a single device's folder and --device",
        )
    unique = {each.file_name: each for each in reversed(found)}
    return sorted(unique.values())


def _device(folder: str) -> str | None:
    """The catalogue's name of a device's folder; None if it is not known."""
    for suffix in SUFFIXES:
        folder = folder.removesuffix(suffix)
    try:
        return named_device(folder).name
    except InputError:
        return None
