"""Estimators of scikit-learn, trained by many workers: `PartrainClassifier` and `PartrainRegressor`."""

from partrain.errors import BadJob

try:
    import sklearn
except ImportError:
    raise BadJob("PartrainClassifier and PartrainRegressor need scikit-learn: pip install 'partrain[sklearn]'") from None

if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 6):
    raise BadJob(f"PartrainClassifier and PartrainRegressor need scikit-learn 1.6, not {sklearn.__version__}")

from partrain.estimators.estimators import PartrainClassifier, PartrainRegressor

__all__ = ["PartrainClassifier", "PartrainRegressor"]
