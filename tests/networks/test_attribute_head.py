"""The head whose texts an image chooses."""

import pytest
import torch
from tiny_hf import save_sentences
from torch.nn.functional import normalize

from remix.networks import AttributeHead, described_head, open_text_tower

FEATURES = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def head(tmp_path):
    open_text_tower.cache_clear()
    save_sentences(tmp_path, 10)
    head = AttributeHead(10, place=str(tmp_path), projection=str(tmp_path / "projection.safetensors"))
    head.grow(["cat", "dog"])
    head.grow(["bird"])
    return head


@torch.no_grad()
def test_logits_are_those_of_texts_made_image_by_image(head):
    tower, rows = head._tower(), []
    for feature in FEATURES:
        cosines = torch.cosine_similarity(feature[None], head.attributes.keys)
        prompts = head.attributes.prompts[cosines.topk(3).indices.sort().values].reshape(36, -1)
        logits = []
        for name in ("cat.", "dog.", "bird."):
            numbers, _ = tower.tokens([name])
            embedded = tower.encoder.embed(numbers)[0]
            text = torch.cat([embedded[:1], prompts, embedded[1:]])[None]
            vector = normalize(tower.encoder.encode(text, torch.ones(1, text.shape[1], dtype=torch.int64)))[0]
            logits.append(100 * normalize(feature, dim=0) @ vector)
        rows.append(torch.stack(logits))
    torch.testing.assert_close(head(FEATURES), torch.stack(rows), atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(head.logits(FEATURES, 2), head(FEATURES)[:, 2:], atol=1e-3, rtol=1e-4)


@torch.no_grad()
def test_it_is_built_again_from_its_description(head):
    again = described_head(10, head.describe())
    state = head.state_dict()
    assert {key: tuple(value.shape) for key, value in state.items()} == AttributeHead.shapes(10, head.describe())
    again.load_state_dict(state)
    torch.testing.assert_close(again(FEATURES), head(FEATURES))


def test_only_keys_and_prompts_learn_and_it_is_not_exported(head):
    assert {name for name, _ in head.named_parameters()} == {"attributes.keys", "attributes.prompts"}
    with pytest.raises(ValueError, match="cannot be exported without its tower"):
        head.plain()
    with pytest.raises(ValueError, match="beside 36 of prompts, and the text tower takes 64: shorten the name"):
        head.check_names(["a name of very many letters indeed"])
