"""A small model for elsewhere: ONNX, JavaScript, C in float32 and int8."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from protopinv import ProtoPINVClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# Small on purpose: one bank of few prototypes, one narrow layer, numbers as they are.
model = ProtoPINVClassifier(
    n_prototypes=30,
    hidden_sizes=48,
    activation="relu",
    scaling="global",
    n_members=1,
    ensemble_size=1,
    number_encoding="raw",
    max_epochs=200,
    random_state=0,
).fit(X_train, y_train)
print(f"accuracy in Python {model.score(X_test, y_test):.3f}")

for name in ("digits.onnx", "digits.mjs", "digits.c"):
    done = model.export(name, X=X_test, y=y_test)
    print(f"{done.format:10} {done.dtype} {done.file_bytes:,} bytes, {dict(done.change)}")

# For a microcontroller: rows of training say which ranges the integers must cover.
tiny = model.export("tiny.c", dtype="int8", calibration=X_train, X=X_test, y=y_test)
print(f"int8: {tiny.constant_bytes:,} bytes of constants, {tiny.static_bytes} of memory")
print(f"the same label for {100 * tiny.change['same_labels']:.1f} % of the rows")

plain = model.to_sklearn()  # an ordinary MLPClassifier
assert np.allclose(plain.predict_proba(X_test), model.predict_proba(X_test), atol=1e-6)
assert tiny.change["same_labels"] > 0.95
