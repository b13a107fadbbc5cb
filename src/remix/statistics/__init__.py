"""What is remembered of seen data: moments, Laplace covariances, class Gaussians, selectors. Never an image."""

from remix.networks.hooks import Hooks, Point
from remix.networks.views import View, as_view, list_views
from remix.statistics.calibration import Calibration
from remix.statistics.class_gaussians import ClassGaussians, ClassMeter, class_gaussians, measure_classes
from remix.statistics.class_sums import ClassSums
from remix.statistics.covariance import COVARIANCE_LIMIT, Covariance, Measured, covariance_kinds, register_covariance
from remix.statistics.dense import Dense
from remix.statistics.drift import MLP_SHARE, Drift, MlpDrift, fit_drift, fit_mlp_drift, fit_shift, shifted_means
from remix.statistics.familiarity import Familiarity
from remix.statistics.feature_matrix import FeatureMatrix, feature_matrix
from remix.statistics.laplace import Laplace
from remix.statistics.layers import Layers, LayerStatistics, check_layers, merge_layers
from remix.statistics.measure import (
    LayerMeter,
    Meter,
    NonFiniteActivationError,
    measure_layers,
    meters_by_view,
    require_finite,
    run_meters,
)
from remix.statistics.memory import Memory
from remix.statistics.moments import Reservoir, RunningMoments, mixture
from remix.statistics.places import (
    batchnorm_points,
    batchnorm_statistics,
    block_input_points,
    feature_point,
    rescale_to_batchnorm,
    resolution_points,
    resolution_shapes,
)
from remix.statistics.published_laplace import CodeLaplace, PaperLaplace
from remix.statistics.records import ClassRecord, TaskRecord
from remix.statistics.scatter import Scatter, ScatterKind
from remix.statistics.selector_training import SelectorRecipe, train_selectors
from remix.statistics.selectors import Score, Selectors, compensate, contrastive_loss, select_features, select_from_pool
from remix.statistics.statistic import Statistic, StoredItem, Tensors, register_statistic
from remix.statistics.storage import DamagedFileError, FileHeader, StoredTensor, read_file, read_header, write_file

__all__ = [
    "COVARIANCE_LIMIT",
    "MLP_SHARE",
    "Calibration",
    "ClassGaussians",
    "ClassMeter",
    "ClassRecord",
    "ClassSums",
    "CodeLaplace",
    "Covariance",
    "DamagedFileError",
    "Dense",
    "Drift",
    "Familiarity",
    "FeatureMatrix",
    "FileHeader",
    "Hooks",
    "Laplace",
    "LayerMeter",
    "LayerStatistics",
    "Layers",
    "Measured",
    "Memory",
    "Meter",
    "MlpDrift",
    "NonFiniteActivationError",
    "PaperLaplace",
    "Point",
    "Reservoir",
    "RunningMoments",
    "Scatter",
    "ScatterKind",
    "Score",
    "SelectorRecipe",
    "Selectors",
    "Statistic",
    "StoredItem",
    "StoredTensor",
    "TaskRecord",
    "Tensors",
    "View",
    "as_view",
    "batchnorm_points",
    "batchnorm_statistics",
    "block_input_points",
    "check_layers",
    "class_gaussians",
    "compensate",
    "contrastive_loss",
    "covariance_kinds",
    "feature_matrix",
    "feature_point",
    "fit_drift",
    "fit_mlp_drift",
    "fit_shift",
    "list_views",
    "measure_classes",
    "measure_layers",
    "merge_layers",
    "meters_by_view",
    "mixture",
    "read_file",
    "read_header",
    "register_covariance",
    "register_statistic",
    "require_finite",
    "rescale_to_batchnorm",
    "resolution_points",
    "resolution_shapes",
    "run_meters",
    "select_features",
    "select_from_pool",
    "shifted_means",
    "train_selectors",
    "write_file",
]
