"""Small images: what a stem and distorted copies do where images are few."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from protopinv import ConvStem, ImageCopies, ProtoPINVClassifier

images, y = load_digits(return_X_y=True)
images = np.kron(images.reshape(-1, 8, 8), np.ones((2, 2)))  # 16 by 16, as (n, height, width)
X_train, X_test, y_train, y_test = train_test_split(
    images, y, train_size=300, test_size=400, stratify=y, random_state=0
)

ways = {
    "pixels": {"stem": None},
    "a stem": {"stem": ConvStem("pca", filters=16, pool=4)},
    "copies": {"stem": None, "copies": ImageCopies(2, shift=1.0, bend=0.5)},
}
scores = {}
for name, parameters in ways.items():
    model = ProtoPINVClassifier(**parameters, effort="quick", random_state=0)
    scores[name] = model.fit(X_train, y_train).score(X_test, y_test)
    print(f"{name:8} {scores[name]:.3f}")

assert min(scores.values()) > 0.85
