"""The text tower of a CLIP."""

import json

import pytest
import torch
from tiny_hf import WORDS, make, save, save_tokenizer
from transformers import CLIPTokenizer

from remix.networks import open_text_tower

TEXTS = ["a photo of a cat.", "a dog.", "bird"]


@pytest.fixture
def clip(tmp_path):
    model = make("clip")
    save(model, tmp_path)
    save_tokenizer(tmp_path)
    return model, tmp_path


@torch.no_grad()
def test_features_of_texts_are_those_of_the_library(clip):
    model, folder = clip
    given = CLIPTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    expected = model.get_text_features(**given).pooler_output
    tower = open_text_tower(str(folder))
    torch.testing.assert_close(tower(TEXTS), expected, atol=1e-5, rtol=0)
    assert tower.feature_dim == expected.shape[1] == 10
    assert tower.encoder.adapted == 2


@torch.no_grad()
def test_a_text_gives_the_same_alone_and_beside_longer_ones(clip):
    tower = open_text_tower(str(clip[1]))
    torch.testing.assert_close(tower(["a dog."]), tower(TEXTS)[1:2], atol=1e-5, rtol=0)
    assert (tower(["a dog."]) - tower(["a cat."])).abs().max() > 1e-3


def test_a_text_longer_than_the_tower_takes_is_refused(clip):
    tower = open_text_tower(str(clip[1]))
    with pytest.raises(ValueError, match=r"the text 'a photo of a very long .*' has \d+ tokens, .* takes 20: shorten"):
        tower(["a cat.", "a photo of a very long name."])
    with pytest.raises(ValueError, match="give a list of texts"):
        tower([])


def test_a_missing_or_foreign_tokenizer_is_refused(clip):
    folder = clip[1]
    told = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"the tokenizer of .* cannot be read"):
        open_text_tower(str(folder))
    told["model"]["vocab"] |= {"z" * number: len(WORDS) + number for number in range(2, 9)}
    (folder / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=r"the tokenizer knows \d+ tokens, the text tower 56"):
        open_text_tower(str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"has no tokenizer: tokenizer\.json"):
        open_text_tower(str(folder))


def test_a_folder_of_another_kind_has_no_text_tower(tmp_path):
    with pytest.raises(ValueError, match="a model of the kind 'vit'; those that can be used are clip"):
        open_text_tower(str(save(make("vit"), tmp_path)))
