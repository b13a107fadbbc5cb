"""The head that knows classes by their names."""

import copy

import pytest
import torch
from tiny_hf import make, save, save_clip, save_sentences
from torch.nn.functional import cross_entropy, normalize
from transformers import BertTokenizer, CLIPTokenizer

from remix.networks import TextHead, create_head, described_head, open_text_tower
from remix.networks.text_head import spoken

TEMPLATES = ("a photo of a {}.", "a {}.")
FEATURES = torch.randn(5, 10, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def clip(tmp_path):
    open_text_tower.cache_clear()
    return save_clip(tmp_path), str(tmp_path)


def library_vectors(model, folder, names):
    rows = []
    for name in names:
        given = CLIPTokenizer.from_pretrained(folder)(
            [text.replace("{}", name) for text in TEMPLATES], padding=True, return_tensors="pt"
        )
        rows.append(normalize(normalize(model.get_text_features(**given).pooler_output).mean(0), dim=0))
    return torch.stack(rows)


@torch.no_grad()
def test_logits_are_a_hundred_cosines_with_the_averaged_texts_of_classes(clip):
    model, folder = clip
    head = TextHead(10, place=folder, templates=TEMPLATES)
    head.grow(["cat", "dog"])
    head.grow(["red_bird"])
    assert head.task_sizes == (2, 1)
    vectors = library_vectors(model, folder, ["cat", "dog", "red bird"])
    torch.testing.assert_close(head(FEATURES), 100 * normalize(FEATURES) @ vectors.T, atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_a_sentence_encoder_and_a_projection_give_vectors_of_classes(tmp_path):
    model = save_sentences(tmp_path, 10)
    head = TextHead(10, place=str(tmp_path), projection=str(tmp_path / "projection.safetensors"))
    head.grow(["cat"])
    given = BertTokenizer.from_pretrained(tmp_path)(["a photo of a cat."], return_tensors="pt")
    sentence = normalize(model(**given).last_hidden_state.mean(1))
    encoder = open_text_tower(str(tmp_path), str(tmp_path / "projection.safetensors")).encoder
    vector = normalize((sentence - encoder.mean) @ encoder.projection)
    torch.testing.assert_close(head(FEATURES), 100 * normalize(FEATURES) @ vector.T, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("001.Black_footed_Albatross", "Black footed Albatross"),
        ("sweet_pepper", "sweet pepper"),
        (" a  b ", "a b"),
        ("7", "7"),
        ("12.", "12."),
    ],
)
def test_names_of_classes_as_they_are_written_in_texts(name, said):
    assert spoken(name) == said


def learned(folder, steps=3):
    head = TextHead(10, place=folder, adapted=True)
    head.grow(["cat", "dog"], generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.SGD(head.parameters(), 1.0)
    for _ in range(steps):
        optimiser.zero_grad()
        cross_entropy(head(FEATURES), torch.tensor([0, 1, 0, 1, 1])).backward()
        optimiser.step()
    return head.eval()


def test_adapters_of_the_tower_learn_and_the_tower_stays(clip):
    head = learned(clip[1])
    assert len(head.adapters) == 2
    fresh = TextHead(10, place=clip[1])
    fresh.grow(["cat", "dog"])
    with torch.no_grad():
        assert (head.vectors() - fresh.vectors()).abs().max() > 1e-4
        texts = head._tower()(["a photo of a cat.", "a photo of a dog."])
        torch.testing.assert_close(fresh.vectors(), normalize(texts))
    assert {id(one) for one in head.parameters()} == {id(one) for one in head.adapters.parameters()}


def test_a_head_that_learned_is_the_same_from_its_description_without_the_tower(clip, monkeypatch):
    head = learned(clip[1]).requires_grad_(False)
    state, described, logits = copy.deepcopy(head.state_dict()), head.describe(), head(FEATURES)
    assert {key: tuple(value.shape) for key, value in state.items()} == TextHead.shapes(10, described)
    monkeypatch.setattr("remix.networks.text_head.open_text_tower", None)
    again = described_head(10, described).eval().requires_grad_(False)
    again.load_state_dict(state)
    torch.testing.assert_close(again(FEATURES), logits)
    torch.testing.assert_close(head.plain()(FEATURES), logits)


def test_a_copy_keeps_its_vectors_while_the_other_learns_and_shares_the_tower(clip):
    head = learned(clip[1])
    other = copy.deepcopy(head).requires_grad_(False)
    with torch.no_grad():
        before = other(FEATURES)
    cross_entropy(head(FEATURES), torch.tensor([0, 1, 0, 1, 1])).backward()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter -= 10 * (0 if parameter.grad is None else parameter.grad)
        assert torch.equal(other(FEATURES), before)
        assert not torch.equal(head(FEATURES), before)
    assert head._tower() is other._tower()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"templates": ["a photo"]}, r"a template is a text with one \{\} for the name"),
        ({"templates": []}, r"a template is a text"),
        ({"projection": "x.safetensors"}, "a projection of its own: leave the projection out"),
        ({"feature_dim": 11}, "features of length 10, the image network of length 11"),
    ],
)
def test_a_head_that_cannot_be_is_refused(clip, options, message):
    with pytest.raises(ValueError, match=message):
        TextHead(**{"feature_dim": 10, "place": clip[1], **options})


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a_cat", "dog", "a cat"], "the classes 'a_cat' and 'a cat' have one text, 'a cat': rename one"),
        (["001.Cat", "cat"], "the classes '001.Cat' and 'cat' have one text"),
        (["a very long name"], r"has \d+ tokens, and the text tower takes 20: shorten the name or the template"),
    ],
)
def test_names_that_make_no_texts_are_refused(clip, names, message):
    with pytest.raises(ValueError, match=message):
        TextHead(10, place=clip[1]).check_names(names)


def test_sentences_need_a_projection_that_fits_and_take_no_adapters(tmp_path):
    save_sentences(tmp_path, 10)
    with pytest.raises(ValueError, match="is a sentence encoder, which knows nothing of images: give the projection"):
        TextHead(10, place=str(tmp_path))
    fitting = str(tmp_path / "projection.safetensors")
    with pytest.raises(ValueError, match="its texts stay as they are, without adapters"):
        TextHead(10, place=str(tmp_path), projection=fitting, adapted=True)
    with pytest.raises(ValueError, match="holds no tensor 'projection'"):
        TextHead(10, place=str(tmp_path), projection=str(tmp_path / "model.safetensors"))
    with pytest.raises(FileNotFoundError, match="no weights file"):
        TextHead(10, place=str(tmp_path), projection=str(tmp_path / "none.safetensors"))


def test_a_head_without_tower_does_not_grow(tmp_path):
    with pytest.raises(ValueError, match="this head has no text tower"):
        create_head("text", 4).grow(["cat"])
    with pytest.raises(ValueError, match="of the kind 'vit'; those that can be used are clip and bert"):
        TextHead(16, place=str(save(make("vit"), tmp_path)))
