"""Local features: the identities of each kind of tower on random weights, and views made of them."""

from __future__ import annotations

from functools import lru_cache

import open_clip
import pytest
import torch
import torch.nn.functional as F
from open_clip.timm_model import TimmModel
from PIL import Image
from timm.models.vision_transformer import VisionTransformer as TimmViT

from mltta import encode_images, load_backbone
from mltta.errors import ConfigError
from mltta.images.specs import LocalSpec, ViewSpec
from mltta.images.views import Preprocess, render_local
from mltta.model.local import local_path
from mltta.model.windows import tiles, windows
from tests.images.test_views import noise


@lru_cache(maxsize=1)
def visual(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if name == "mini":
        return load_backbone("mini").model.visual
    config = open_clip.get_model_config(name)
    assert config is not None
    model = open_clip.create_model(name, pretrained=None, pretrained_text=False)
    return model.visual.eval()


def small_vit(**vision: object) -> torch.nn.Module:
    torch.manual_seed(0)
    config = {"image_size": 32, "layers": 3, "width": 64, "patch_size": 8, "head_width": 16, **vision}
    text = {"context_length": 8, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1}
    return open_clip.CLIP(embed_dim=24, vision_cfg=config, text_cfg=text).visual.eval()


def unit_error(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@torch.no_grad()
@pytest.mark.parametrize("name", ["mini", "MobileCLIP-S1", "convnext_base"])
def test_the_mean_of_the_locations_of_an_averaged_cnn_is_the_global_feature(name):
    tower, pixels = visual(name), torch.randn(1, 3, 256, 256)
    cells = local_path(tower)(pixels)
    assert cells.shape[1:3] == (8, 8)
    assert unit_error(cells.mean(dim=(1, 2)), tower(pixels)) < 1e-5


@torch.no_grad()
def test_the_mean_of_the_patches_of_an_averaged_vit_is_the_global_feature():
    tower = small_vit(pool_type="avg", final_ln_after_pool=True)
    pixels = torch.randn(2, 3, 32, 32)
    assert unit_error(local_path(tower)(pixels).mean(dim=(1, 2)), tower(pixels)) < 1e-5


@torch.no_grad()
def test_a_patch_of_a_vit_passes_the_last_block_as_if_it_attended_to_itself_alone():
    tower, pixels = small_vit(), torch.randn(2, 3, 32, 32)
    x = tower._embeds(pixels)
    *before, last = tower.transformer.resblocks
    for block in before:
        x = block(x)
    alone = torch.full((x.shape[1], x.shape[1]), -torch.inf).fill_diagonal_(0)
    want = tower.ln_post(last(x, attn_mask=alone))[:, 1:] @ tower.proj
    torch.testing.assert_close(local_path(tower)(pixels).flatten(1, 2), want, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_vit_reads_another_size_by_the_positions_that_open_clip_would_give_it():
    tower, pixels = small_vit(), torch.randn(1, 3, 48, 48)
    larger = small_vit(image_size=48)
    state = {f"visual.{key}": value for key, value in tower.state_dict().items()}
    holder = torch.nn.Module()
    holder.visual = larger
    open_clip.model.resize_pos_embed(state, holder)
    holder.load_state_dict(state)
    want = local_path(larger)(pixels)
    torch.testing.assert_close(local_path(tower)(pixels), want, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_clips_resnet_gives_the_value_path_of_its_attention_pool():
    torch.manual_seed(0)
    config = {"image_size": 64, "layers": (1, 1, 1, 1), "width": 8}
    text = {"context_length": 8, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1}
    tower = open_clip.CLIP(embed_dim=24, vision_cfg=config, text_cfg=text).visual.eval()
    pixels = torch.randn(1, 3, 64, 64)
    cells = local_path(tower)(pixels)
    one = tower.layer4(tower.layer3(tower.layer2(tower.layer1(tower.stem(pixels)))))[0, :, 1, 0]
    want = tower.attnpool.c_proj(tower.attnpool.v_proj(one))
    torch.testing.assert_close(cells[0, 1, 0], want)
    assert local_path(tower)(torch.randn(1, 3, 96, 96)).shape[1:3] == (3, 3)


@torch.no_grad()
def test_siglips_location_is_its_token_alone_in_the_attention_pool():
    torch.manual_seed(0)
    tower = TimmModel.__new__(TimmModel)  # as open_clip builds it, but small
    torch.nn.Module.__init__(tower)
    tower.trunk = TimmViT(
        img_size=32,
        patch_size=8,
        embed_dim=32,
        depth=2,
        num_heads=2,
        class_token=False,
        global_pool="map",
        num_classes=0,
    )
    tower.head = torch.nn.Sequential()
    tower.eval()
    pixels = torch.randn(1, 3, 32, 32)
    token = tower.trunk.forward_features(pixels)[:, 5:6]
    want = tower.trunk.forward_head(token)
    torch.testing.assert_close(local_path(tower)(pixels).flatten(1, 2)[:, 5], want, atol=1e-5, rtol=1e-5)
    assert local_path(tower)(torch.randn(1, 3, 48, 48)).shape[1:3] == (6, 6)


def test_windows_are_means_of_squares_row_by_row():
    cells = torch.arange(2 * 5 * 5 * 3, dtype=torch.float32).view(2, 5, 5, 3)
    found = windows(cells, 3, 2)
    want = [cells[:, y : y + 3, x : x + 3].mean(dim=(1, 2)) for y in (0, 2) for x in (0, 2)]
    torch.testing.assert_close(found, torch.stack(want, dim=1))
    torch.testing.assert_close(windows(cells, 9, 4), cells.mean(dim=(1, 2))[:, None])


def test_tiles_cover_an_input_evenly():
    pixels = torch.arange(512.0).expand(1, 3, 512, 512)
    found = tiles(pixels, 224)
    assert found.shape == (1, 3, 3, 3, 224, 224)
    assert [int(x) for x in found[0, 0, :, 0, 0, 0]] == [0, 144, 288]
    assert tiles(pixels[..., :224, :224], 224).shape[1] == 1


def test_local_views_follow_the_clean_one_and_are_windows_of_the_map():
    backbone, spec = load_backbone("mini"), LocalSpec(320, 96, 32)
    image = noise(300, 200)
    with torch.no_grad():
        cells = backbone.local(torch.from_numpy(render_local(image, spec, backbone.preprocess)))
        want = F.normalize(windows(cells, 3, 1), dim=-1)[0]
    encoded = encode_images(backbone, [image], [spec])
    found = encoded.features(spec)[0]
    assert len(found) == 1 + 5 + 64
    torch.testing.assert_close(found[6:], want, atol=2e-3, rtol=0)
    quarters = [cells[0, y : y + 5, x : x + 5].mean(dim=(0, 1)) for y in (0, 5) for x in (0, 5)]
    want = F.normalize(torch.stack([cells[0].mean(dim=(0, 1)), *quarters]), dim=-1)
    torch.testing.assert_close(found[1:6], want, atol=2e-3, rtol=0)
    torch.testing.assert_close(found[:1], encoded.features(ViewSpec(count=1))[0])
    alone = encode_images(backbone, [image], [LocalSpec(320, 96, 32, clean=False)])
    torch.testing.assert_close(alone.features(LocalSpec(320, 96, 32, clean=False))[0], found[1:])


def test_local_views_do_not_depend_on_the_photos_beside_them():
    backbone, spec = load_backbone("mini"), LocalSpec(320, 96, 32)
    images = [noise(300, 200), noise(64, 500), noise(20, 20)]
    together = encode_images(backbone, images, [spec, ViewSpec(count=3)]).features(spec)
    for i, image in enumerate(images):
        assert torch.equal(encode_images(backbone, [image], [spec]).features(spec)[0], together[i])


def test_the_input_of_local_views_shows_the_whole_image():
    image = Image.new("RGB", (400, 100), "white")
    image.paste("black", (0, 0, 40, 100))
    plain = Preprocess(mean=(0, 0, 0), std=(1, 1, 1))
    shown = render_local(image, LocalSpec(320, 96, 32), plain)[0, 0]
    assert shown.shape == (320, 320)
    assert shown[:, :24].max() < 0.1
    assert shown[:, 48:].min() > 0.9


@pytest.mark.parametrize("bad", [{"size": 0}, {"window": -1}, {"stride": 1.5}, {"size": 64, "window": 65}])
def test_local_views_that_cannot_be_are_refused(bad):
    with pytest.raises(ConfigError):
        LocalSpec(**bad)
