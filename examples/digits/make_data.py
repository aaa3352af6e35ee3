"""Write scikit-learn's handwritten digits out as an image folder.

    python make_data.py DIR

gives DIR/train/<label>/NNNN.png (1437 images) and DIR/val/<label>/NNNN.png (360), the same split
every time.
A complete DIR is left as it is; DIR appears all at once or not at all.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

SIZES = {"train": 1437, "val": 360}
SIDE = 32


def is_complete(folder: Path) -> bool:
    return all(sum(1 for _ in (folder / part).glob("*/*.png")) == n for part, n in SIZES.items())


def write(folder: Path) -> None:
    # Imported here because it takes seconds, and a folder that is complete needs none of it.
    from PIL import Image
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    train, val = train_test_split(
        range(len(digits.target)),
        test_size=SIZES["val"],
        stratify=digits.target,
        random_state=0,
    )
    for part, indices in {"train": train, "val": val}.items():
        for i in indices:
            label = folder / part / str(digits.target[i])
            label.mkdir(parents=True, exist_ok=True)
            # The 8x8 originals hold 0..16, not 0..255.
            pixels = (digits.images[i] * (255 / 16)).round().astype("uint8")
            image = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            image.save(label / f"{i:04}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args().folder.absolute()

    if is_complete(folder):
        print(f"{folder} is complete already")
        return
    if folder.exists() and {p.name for p in folder.iterdir()} - set(SIZES):
        sys.exit(f"{folder} holds other files; name a folder of its own")

    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(beside / "new")
        if folder.exists():  # what an interrupted copy left
            os.rename(folder, beside / "old")
        os.rename(beside / "new", folder)
    finally:
        shutil.rmtree(beside)
    print(f"wrote {SIZES['train']} training and {SIZES['val']} validation images to {folder}")


if __name__ == "__main__":
    main()
