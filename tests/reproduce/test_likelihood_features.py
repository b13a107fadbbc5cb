"""Features of networks in files."""

import numpy as np
import pytest
import torch

from remix.networks import open_network
from remix.reproduce.likelihood_features import read_features, token_features, write_features


def test_features_are_written_whole_and_read_as_a_memory_map(tmp_path):
    maps = torch.randn(10, 2, 3, 3)
    seen = []
    write_features(tmp_path, 10, ({"a": part} for part in maps.split(4)), lambda done, rows: seen.append((done, rows)))
    rows, shape = read_features(tmp_path, "a")
    assert shape == (2, 3, 3)
    assert isinstance(rows, np.memmap)
    np.testing.assert_allclose(rows, maps.flatten(1).numpy(), atol=2e-3)
    assert seen == [(4, 10), (8, 10), (10, 10)]
    with pytest.raises(FileNotFoundError, match="no features"):
        read_features(tmp_path, "b")
    with pytest.raises(ValueError, match="not finite"):
        write_features(tmp_path, 4, iter([{"c": torch.full((4, 1, 1, 1), 1e6)}]), lambda *_: None)
    assert not (tmp_path / "c.npy").exists()


def test_transformer_blocks_give_pooled_and_single_patches(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=24, patch_size=8, hidden_size=12, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2
    )
    torch.manual_seed(0)
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(tmp_path / "vit")
    network = open_network(f"hf:{tmp_path / 'vit'}", {}, size=24).backbone
    images = torch.randn(5, 3, 24, 24)
    points = {f"block {number}": f"layers.{number}:output" for number in range(3)}
    (found,) = token_features(network, iter([images]), points, tokens=4)
    with torch.no_grad():
        states = model(images, output_hidden_states=True).hidden_states
    assert list(found) == [*points, *(f"{name} tokens" for name in points)]
    torch.testing.assert_close(found["block 1"], states[2][:, 1:].mean(1))
    single = found["block 1 tokens"]
    assert single.shape == (5, 4, 12)
    distances = torch.cdist(single, states[2][:, 1:])  # each is one of the patches of its image, none twice
    assert (distances.min(2).values < 1e-4).all()
    assert all(len(set(rows.tolist())) == 4 for rows in distances.argmin(2))
    (every,) = token_features(network, iter([images]), points, tokens=99)
    torch.testing.assert_close(every["block 1 tokens"], states[2][:, 1:])
