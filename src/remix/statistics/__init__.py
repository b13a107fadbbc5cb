"""What is remembered of seen data: moments, Laplace covariances, class Gaussians, selectors. Never an image."""

from remix.networks.hooks import Hooks, Point
from remix.networks.views import View, as_view, list_views
from remix.statistics.batchnorm import batchnorm_points, batchnorm_statistics, rescale_to_batchnorm
from remix.statistics.blocks import block_input_points, feature_point, resolution_points, resolution_shapes
from remix.statistics.class_gaussians import ClassGaussians
from remix.statistics.class_meter import ClassMeter, class_gaussians, measure_classes
from remix.statistics.drift import Drift, fit_drift
from remix.statistics.finite import NonFiniteActivationError, require_finite
from remix.statistics.layer_meter import COVARIANCE_LIMIT, LayerMeter, measure_layers
from remix.statistics.layers import Kind, LayerStatistics
from remix.statistics.measure import Meter, run_meters
from remix.statistics.memory import Memory, StoredItem
from remix.statistics.merge import merge_layers
from remix.statistics.moments import RunningMoments
from remix.statistics.network_check import check_layers
from remix.statistics.records import ClassRecord, TaskRecord
from remix.statistics.reservoir import Reservoir
from remix.statistics.selection import compensate, select_features
from remix.statistics.selector_training import SelectorRecipe, train_selectors
from remix.statistics.selectors import Selectors, contrastive_loss
from remix.statistics.storage import DamagedFileError, FileHeader, StoredTensor, read_file, read_header, write_file

__all__ = [
    "COVARIANCE_LIMIT",
    "ClassGaussians",
    "ClassMeter",
    "ClassRecord",
    "DamagedFileError",
    "Drift",
    "FileHeader",
    "Hooks",
    "Kind",
    "LayerMeter",
    "LayerStatistics",
    "Memory",
    "Meter",
    "NonFiniteActivationError",
    "Point",
    "Reservoir",
    "RunningMoments",
    "SelectorRecipe",
    "Selectors",
    "StoredItem",
    "StoredTensor",
    "TaskRecord",
    "View",
    "as_view",
    "batchnorm_points",
    "batchnorm_statistics",
    "block_input_points",
    "check_layers",
    "class_gaussians",
    "compensate",
    "contrastive_loss",
    "feature_point",
    "fit_drift",
    "list_views",
    "measure_classes",
    "measure_layers",
    "merge_layers",
    "read_file",
    "read_header",
    "require_finite",
    "rescale_to_batchnorm",
    "resolution_points",
    "resolution_shapes",
    "run_meters",
    "select_features",
    "train_selectors",
    "write_file",
]
