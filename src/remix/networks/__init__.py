"""Backbones that can be cut into blocks, and heads that can grow."""

from remix.networks.adapt import ModuleBackbone, as_backbone
from remix.networks.attribute_head import AttributeHead
from remix.networks.backbone import Backbone, Block, Items, Pooling, average_pool
from remix.networks.cifar_resnet import CifarResNet
from remix.networks.convnet import ConvNet
from remix.networks.exact_heads import ExactHead, ExactLinearHead, ExactQuadraticHead
from remix.networks.feature_map import FeatureMap
from remix.networks.heads import (
    Classifier,
    CosineHead,
    Head,
    LinearHead,
    create_head,
    described_head,
    frozen_copy,
    list_heads,
    register_head,
    saved_state,
)
from remix.networks.hooks import Hooks, Point
from remix.networks.imagenet_resnet import ImageNetResNet
from remix.networks.opening import OpenedNetwork, open_module, open_network, preprocessing_for
from remix.networks.probe import check_backbone
from remix.networks.registry import (
    backbone_options,
    create_backbone,
    list_backbones,
    register_backbone,
    seeded_backbone,
)
from remix.networks.routed_head import RoutedHead
from remix.networks.text_head import TextHead
from remix.networks.text_tower import TextTower, open_text_tower
from remix.networks.transformer import Transformer
from remix.networks.views import View, as_view, list_views
from remix.networks.weights import file_options, load_classifier, load_weights, read_weights

__all__ = [
    "AttributeHead",
    "Backbone",
    "Block",
    "CifarResNet",
    "Classifier",
    "ConvNet",
    "CosineHead",
    "ExactHead",
    "ExactLinearHead",
    "ExactQuadraticHead",
    "FeatureMap",
    "Head",
    "Hooks",
    "ImageNetResNet",
    "Items",
    "LinearHead",
    "ModuleBackbone",
    "OpenedNetwork",
    "Point",
    "Pooling",
    "RoutedHead",
    "TextHead",
    "TextTower",
    "Transformer",
    "View",
    "as_backbone",
    "as_view",
    "average_pool",
    "backbone_options",
    "check_backbone",
    "create_backbone",
    "create_head",
    "described_head",
    "file_options",
    "frozen_copy",
    "list_backbones",
    "list_heads",
    "list_views",
    "load_classifier",
    "load_weights",
    "open_module",
    "open_network",
    "open_text_tower",
    "preprocessing_for",
    "read_weights",
    "register_backbone",
    "register_head",
    "saved_state",
    "seeded_backbone",
]
