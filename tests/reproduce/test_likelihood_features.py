"""Features of networks in files."""

import numpy as np
import pytest
import torch

from remix.reproduce.likelihood_features import open_vit, read_features, write_features


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


def test_transformer_blocks_are_pooled_over_patches(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=12, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2
    )
    torch.manual_seed(0)
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(tmp_path / "vit")
    vit = open_vit(tmp_path / "vit")
    images = torch.randn(5, 3, 16, 16)
    (found,) = vit.pooled(iter([images]))
    with torch.no_grad():
        states = model(images, output_hidden_states=True).hidden_states
    assert list(found) == ["block 0", "block 1", "block 2"]
    torch.testing.assert_close(found["block 1"], states[2][:, 1:].mean(1))
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        open_vit(tmp_path)
