"""Several labels a row in one model, and rows that count more than others."""

import numpy as np
from sklearn.datasets import make_multilabel_classification

from protopinv import ProtoPINVClassifier, evaluate

X, labels = make_multilabel_classification(
    900, n_features=20, n_classes=4, n_labels=2, random_state=0
)
importance = 1.0 + labels.sum(axis=1)  # a row with many labels counts more
train, test = slice(None, 600), slice(600, None)

model = ProtoPINVClassifier(effort="quick", random_state=0)
model.fit(X[train], labels[train], sample_weight=importance[train])
result = evaluate(model, X[test], labels[test], sample_weight=importance[test])
print(f"micro-F1 {result.micro_f1:.2f}, all labels of a row right {result.accuracy:.2f}")
for score in result.per_label:
    print(f"label {score.label}: precision {score.precision:.2f}, recall {score.recall:.2f}")

# A matrix of probabilities, a column a label. 0.5 is the threshold of predict; yours may differ.
likely = model.predict_proba(X[test]) > 0.3
print(f"with a lower threshold {np.mean(likely[labels[test] == 1]):.2f} of the labels are found")

assert result.micro_f1 > 0.6
