"""Backbones that can be cut into blocks, and heads that can grow."""

from remix.networks.adapt import ModuleBackbone, as_backbone
from remix.networks.backbone import Backbone, Block, Items, average_pool
from remix.networks.cifar_resnet import CifarResNet
from remix.networks.classifier import Classifier
from remix.networks.convnet import ConvNet
from remix.networks.head import GrowingHead
from remix.networks.hooks import Hooks, Point
from remix.networks.imagenet_resnet import ImageNetResNet
from remix.networks.probe import check_backbone
from remix.networks.registry import (
    backbone_options,
    create_backbone,
    list_backbones,
    register_backbone,
    seeded_backbone,
)
from remix.networks.views import View, as_view, list_views
from remix.networks.weights import file_options, load_classifier, load_weights, read_weights

__all__ = [
    "Backbone",
    "Block",
    "CifarResNet",
    "Classifier",
    "ConvNet",
    "GrowingHead",
    "Hooks",
    "ImageNetResNet",
    "Items",
    "ModuleBackbone",
    "Point",
    "View",
    "as_backbone",
    "as_view",
    "average_pool",
    "backbone_options",
    "check_backbone",
    "create_backbone",
    "file_options",
    "list_backbones",
    "list_views",
    "load_classifier",
    "load_weights",
    "read_weights",
    "register_backbone",
    "seeded_backbone",
]
