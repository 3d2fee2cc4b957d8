"""Ten digits are learned first; an eleventh class comes later, when the old rows are gone."""

import numpy as np
from sklearn.datasets import load_digits

from protopinv import ProtoPINVClassifier, load

X, y = load_digits(return_X_y=True)
X, y, X_test, y_test = X[:1300], y[:1300].astype(str), X[1300:], y[1300:].astype(str)
ProtoPINVClassifier(effort="quick", random_state=0).fit(X, y).save("digits.safetensors")

# Months later: some images of a new class, here digits in white on black turned to black on white.
inverted, inverted_test = 16 - X[:150], 16 - X_test[:100]
model = load("digits.safetensors")
model.partial_fit(inverted, np.full(len(inverted), "inverted"))

print(f"classes: {', '.join(model.classes_)}")
print(f"digits: {model.score(X_test, y_test):.3f}")
print(f"inverted: {(model.predict(inverted_test) == 'inverted').mean():.3f}")
