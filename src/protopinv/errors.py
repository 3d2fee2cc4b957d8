"""Every exception and warning. A message says the rule, what came, and what to do."""


class ProtoPINVError(Exception):
    """Anything this library refuses to do, with a message meant for its user."""


class ConfigError(ProtoPINVError, ValueError):
    """A hyperparameter is outside its range."""


class DataError(ProtoPINVError, ValueError):
    """Rows, targets or a table cannot be used as they are."""


class DataFileError(ProtoPINVError, OSError):
    """A data file is missing, damaged or cannot be downloaded."""


class ModelFileError(ProtoPINVError, ValueError):
    """A model file is missing, damaged, foreign or from a newer version."""


class OutputError(ProtoPINVError, OSError):
    """A file cannot be written where it should be."""


class MissingExtraError(ProtoPINVError, ImportError):
    """An optional package is needed and not installed."""


class TrainingError(ProtoPINVError, RuntimeError):
    """Training could not be kept finite by any fallback."""


class ExportError(ProtoPINVError, ValueError):
    """A model cannot be written in a foreign format."""


class CheckpointError(ProtoPINVError, ValueError):
    """A checkpoint is missing, damaged, or of other rows or another configuration."""


class RankError(ProtoPINVError, RuntimeError):
    """A process of a job was lost, or the ranks of a job disagree."""


class InterruptedWarning(UserWarning):
    """Training was stopped by Ctrl-C; the best so far was kept."""


class GuardWarning(UserWarning):
    """Training went through, but the guard had to skip steps or lower the learning rate."""


class NotLearnedWarning(UserWarning):
    """Training went through, but the network fits its rows no better than a constant."""


class ExportWarning(UserWarning):
    """A model was exported, but may predict worse than it should."""


class DriftWarning(UserWarning):
    """A loaded model does not answer the examples in its file as it did when it was saved."""


class CheckpointWarning(UserWarning):
    """A checkpoint or a study is damaged or cannot be written; work went on all the same."""


class SlowRowsWarning(UserWarning):
    """A number type was asked for that this device has no instructions for."""


class UnreadableWarning(UserWarning):
    """Text in a column of numbers or dates that is neither, and counts as a gap."""


class GapsWarning(UserWarning):
    """Rows have NaN and those of the fit had none; the middle of its column stands in for each."""


class TextTargetsWarning(UserWarning):
    """Targets came as text, and were read as numbers."""


class ColumnsWarning(UserWarning):
    """Rows have columns that the model was not fitted on; they are left out."""


class CallbackWarning(UserWarning):
    """A callback failed; training went on without it."""
