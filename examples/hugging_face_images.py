"""A Hugging Face set of images, saved with save_to_disk: noisy in, report out.

The images are scikit-learn's digits, 30 % of them under the wrong name, 150 verified. A set from the hub is prepared
likewise: load_dataset(…).save_to_disk(PATH). Run it: pip install datasets && python examples/hugging_face_images.py
"""

import subprocess
import sys

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

images, true = load_digits(return_X_y=True)
random = np.random.default_rng(0)
order = random.permutation(len(images))[:1300]
true = true[order]
given = np.where(random.random(len(true)) < 0.3, (true + random.integers(1, 10, len(true))) % 10, true)
features = datasets.Features(
    {
        "id": datasets.Value("string"),
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=[f"digit {number}" for number in range(10)]),
        "verified_label": datasets.Value("int64"),  # -1 where nobody has looked
    }
)


def rows(places: np.ndarray, label: np.ndarray, verified: np.ndarray) -> datasets.Dataset:
    pictures = [Image.fromarray((images[order[place]].reshape(8, 8) * 15.9).astype(np.uint8)) for place in places]
    names = [f"scan-{place}" for place in places]
    columns = {"id": names, "image": pictures, "label": label[places], "verified_label": verified[places]}
    return datasets.Dataset.from_dict(columns, features=features)


checked = np.where(np.arange(len(true)) < 150, true, -1)
train, test = rows(np.arange(1000), given, checked), rows(np.arange(1000, 1300), true, true)
datasets.DatasetDict({"train": train, "test": test}).save_to_disk("digits-hf")

command = "fit hf:digits-hf --clean 100 -o runs/digits-hf --force --epochs 20 --set data.channels=1 --no-compare"
subprocess.run([sys.executable, "-m", "mslg", *command.split()], check=True)
