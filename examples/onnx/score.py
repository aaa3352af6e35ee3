"""Score images with onnxruntime, without PyTorch, and hold the answers against PyTorch's.

python score.py --model FOLDER --data DIR --answers answers.npy
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

TOLERANCE = 1e-4


def pixels(file: Path) -> np.ndarray:
    with Image.open(file) as image:
        return np.array(image.convert("L"), dtype=np.float32)[None] / 255


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of model.onnx")
    parser.add_argument("--data", type=Path, required=True, help="folder with val/")
    parser.add_argument("--answers", type=Path, required=True)
    args = parser.parse_args()

    files = sorted((args.data / "val").glob("*/*.png"))
    images = np.stack([pixels(file) for file in files])
    labels = np.array([int(file.parent.name) for file in files])
    session = onnxruntime.InferenceSession(args.model / "model.onnx")
    (scores,) = session.run(["scores"], {"images": images})

    answers = np.load(args.answers)
    result = {
        "images": len(files),
        "accuracy": float((scores.argmax(1) == labels).mean()),
        "same_classes": int((scores.argmax(1) == answers.argmax(1)).sum()),
        "difference": float(np.abs(scores - answers).max()),
    }
    print(json.dumps(result))
    Path("outputs/score.json").write_text(json.dumps(result))
    if result["same_classes"] != len(files) or result["difference"] > TOLERANCE:
        raise SystemExit("onnxruntime and PyTorch do not answer the same")


if __name__ == "__main__":
    main()
