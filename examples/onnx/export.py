"""Export the digits model to ONNX, and write down what it answers.

    python export.py --weights model.pt --data DIR --out OUT --answers answers.npy

writes OUT/model.onnx and OUT/model.onnx.data, which belong together: the weights are in the second.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.append(str(Path(__file__).parents[1] / "digits"))
from train import ImageFolder, small_cnn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with val/")
    parser.add_argument("--out", type=Path, default=Path("./outputs"))
    parser.add_argument("--answers", type=Path, required=True)
    args = parser.parse_args()

    model = small_cnn()
    model.load_state_dict(torch.load(args.weights, weights_only=True))
    model.eval()
    images = torch.stack([image for image, _ in ImageFolder(args.data / "val")])
    with torch.no_grad(), args.answers.open("wb") as file:
        np.save(file, model(images).numpy())

    args.out.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        model,
        (images[:2],),
        args.out / "model.onnx",
        input_names=["images"],
        output_names=["scores"],
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
    written = ", ".join(f"{path.name} {path.stat().st_size}" for path in args.out.glob("*.onnx*"))
    print(f"exported: {written}")


if __name__ == "__main__":
    main()
